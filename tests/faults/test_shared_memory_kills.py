"""Tests of large segments in shared memory: none is lost and no file is left, also when either side is killed."""

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
OWN = Path(__file__).parents[1] / "support" / "from_replay.py"
FROM_REPLAY = (
    "algorithm=own", f"algorithm.name={OWN}:build", "env.num_envs=256", "actors=1", "replay.capacity=3276800",
    "replay.batch=32", "replay.samples_per_insert=0.004", "replay.begin_at=65536",
)  # fmt: skip
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


@pytest.mark.slow
def test_a_stored_segment_leaves_shared_memory_while_the_replay_keeps_its_steps(
    tmp_path: Path, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    with shared_place(monkeypatch) as place:
        urls = {"broker_url": servers.broker_url, "redis_url": servers.redis_url, "environment": {PLACE: str(place)}}
        with TrainingRun(tmp_path, *LARGE, *FROM_REPLAY, **urls) as run:
            seen: set[str] = set()
            run.until(lambda: seen.update(path.name for path in bodies(place)) or len(seen) >= 4)
            run.until(lambda: seen.isdisjoint(path.name for path in bodies(place)))
            maps = Path(f"/proc/{run.role('learner').pid}/maps")
            run.until(lambda: not any(name in maps.read_text() for name in seen))
            run.after_updates(1)
            run.process.send_signal(signal.SIGINT)
            assert run.wait() == 130
    account = run.account()
    assert account["stored"] >= 4 and (account["not_kept"], account["lost"], account["refused"]) == (0, 0, 0)
