"""Test of large segments in shared memory, sender and receiver killed: all are learned from, no file is left."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from support.shared_place import shared_place
from support.training_run import TrainingRun

from tasks.codec.shared_memory import PLACE
from workers.servers import Servers

# 32,768 steps of 42 bytes: over 1 MiB a segment.
LARGE = ("sampling=streaming", "env.num_envs=128", "unroll_length=256", "env.goal=null", "total_steps=1000000000")
SHORT = ("algorithm.epochs=1", "algorithm.minibatch_size=8192", "restarts=100", "checkpoint_every=1")


def bodies(place: Path) -> list[Path]:
    return [path for path in place.glob("warren-*/*") if len(path.name) == 32]


@pytest.mark.slow
def test_shared_memory_loses_and_leaves_nothing_when_either_side_is_killed(
    tmp_path: Path, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    with shared_place(monkeypatch) as place:
        urls = {"broker_url": servers.broker_url, "redis_url": servers.redis_url, "environment": {PLACE: str(place)}}
        with TrainingRun(tmp_path, *LARGE, *SHORT, **urls) as run:
            run.until(lambda: bodies(place))
            run.after_updates(1)
            run.role("actor-0").kill()
            run.after_updates(1)
            run.until(lambda: bodies(place))
            run.role("learner").kill()
            run.after_updates(1)
            run.process.send_signal(signal.SIGINT)
            assert run.wait() == 130
        assert list(place.iterdir()) == []
    segments = json.loads((run.folder / "segments.json").read_text())
    assert (segments["lost"], segments["refused"]) == (0, 0)
    assert segments["learned"] >= 6
    assert "cannot be read" not in "".join(path.read_text() for path in (run.folder / "logs").glob("*.log"))
