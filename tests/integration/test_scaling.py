"""Tests of the command that adds actors to a live run and removes them, on real servers."""

from __future__ import annotations

import itertools
import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support import launched
from support.training_run import TrainingRun

from workers.servers import Servers

ENDLESS = (
    "env.goal=null",
    "total_steps=100000000",
    "unroll_length=32",
    "env.num_envs=4",
    "algorithm.minibatch_size=64",
)
STEPS = 32 * 4  # one actor's segment

Scale = Callable[..., subprocess.CompletedProcess[str]]


def scaler(run: TrainingRun, servers: Servers) -> Scale:
    def scale(*counts: str, name: str | None = None) -> subprocess.CompletedProcess[str]:
        urls = ("--broker-url", servers.broker_url, "--redis-url", servers.redis_url)
        return launched.command("workers.scale", "--run", name or run.name, *urls, *counts)

    return scale


def last_rounds(run: TrainingRun, number: int = 3) -> list[int]:
    """Return the environment steps of each of the newest updates."""
    steps = [0, *(update["steps"] for update in run.metrics())]
    return [later - earlier for earlier, later in itertools.pairwise(steps)][-number:]


@pytest.fixture
def gathered(tmp_path: Path, servers: Servers) -> Iterator[TrainingRun]:
    urls = {"broker_url": servers.broker_url, "redis_url": servers.redis_url}
    with TrainingRun(tmp_path, *ENDLESS, "actors=2", "round_timeout=60", **urls) as run:
        run.after_updates(3)
        yield run


@pytest.mark.slow
def test_gathered_rounds_follow_the_number_of_actors_and_none_is_lost(gathered: TrainingRun, servers: Servers) -> None:
    scale = scaler(gathered, servers)
    assert last_rounds(gathered) == [2 * STEPS] * 3
    more = scale("actors=+1")
    assert (more.returncode, more.stdout) == (0, "started actor-2\nactors=3\n"), more.stderr
    gathered.until(lambda: last_rounds(gathered) == [3 * STEPS] * 3)
    gathered.role("actor-2")
    fewer = scale("actors=1")
    assert fewer.stdout.splitlines() == [
        *(f"told actor-{index} to finish and leave" for index in (2, 1)),
        "actors=1",
    ]
    gathered.until(lambda: "actor-2 has left" in gathered.output and "actor-1 has left" in gathered.output)
    gathered.until(lambda: last_rounds(gathered) == [STEPS] * 3)
    assert "has left with status" not in gathered.output
    assert "did not come back" not in (gathered.folder / "logs" / "learner.log").read_text()
    # A restarted learner requests as many rollouts as the one before it.
    learner = gathered.role("learner")
    learner.kill()
    learner.wait()  # no more updates come from it
    made = len(gathered.metrics())
    gathered.until(lambda: len(gathered.metrics()) > made + 3)
    assert last_rounds(gathered) == [STEPS] * 3
    # Numbers of removed actors are not used again.
    assert scale("actors=2").stdout == "started actor-3\nactors=2\n"


def test_a_request_that_cannot_be_met_says_why_and_changes_nothing(gathered: TrainingRun, servers: Servers) -> None:
    scale = scaler(gathered, servers)
    for counts, message in (
        (("actors=0",), "actors: 0"),
        (("actors=-5",), "actors: -3"),
        (("actors=some",), "actors=some: write it as actors=4, actors=+1 or actors=-1"),
        (("actor=3",), "did you mean actors?"),
        (("3",), "3: write it as actors=4"),
    ):
        refused = scale(*counts)
        assert refused.returncode == 2 and message in refused.stderr, refused.stderr
    nowhere = scale("actors=3", name=f"{gathered.name}x")
    assert nowhere.returncode == 2
    assert f"did you mean {gathered.name}?" in nowhere.stderr
    assert scale().stdout == "actors=2\n"


@pytest.mark.slow
def test_streaming_actors_come_and_go_and_no_segment_is_lost(tmp_path: Path, servers: Servers) -> None:
    urls = {"broker_url": servers.broker_url, "redis_url": servers.redis_url}
    with TrainingRun(tmp_path, *ENDLESS, "actors=1", "sampling=streaming", **urls) as run:
        scale = scaler(run, servers)
        run.after_updates(3)
        assert scale("actors=3").stdout == "started actor-1\nstarted actor-2\nactors=3\n"
        for index in (1, 2):
            run.role(f"actor-{index}")
        run.after_updates(10)
        scale("actors=-2")
        run.until(lambda: run.output.count(" has left") == 2)
        run.after_updates(5)
        run.process.terminate()
        run.wait()
    assert json.loads((run.folder / "segments.json").read_text())["lost"] == 0
