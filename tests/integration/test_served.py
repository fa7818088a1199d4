"""Test of training with env runners, which step environments, and actors, which decide for many at once."""

from __future__ import annotations

import json
from pathlib import Path

import psutil
import pytest
from support.training_run import TrainingRun

from workers.servers import Servers


def env_runner(run: TrainingRun, number: int) -> psutil.Process:
    def is_it(line: list[str]) -> bool:
        return "workers.env" in line and f"env_runner_id={number}" in line

    found: psutil.Process = run.until(lambda: next(iter(run.children(is_it)), None))
    return found


@pytest.mark.slow
def test_served_cartpole_learns_through_kills_of_an_env_runner_and_an_actor(tmp_path: Path, servers: Servers) -> None:
    settings = ("sampling=served", "env_runners=2", "actors=2", "env.num_envs=16", "env.goal=100", "unroll_length=32")
    urls = {"broker_url": servers.broker_url, "redis_url": servers.redis_url}
    with TrainingRun(tmp_path, *settings, **urls) as run:
        run.after_updates(3)
        env_runner(run, 0).kill()
        run.until(lambda: "env-0 ended with status 137" in run.output)
        run.after_updates(3)
        run.role("actor-0").kill()
        run.until(lambda: "actor-0 ended with status 137" in run.output)
        run.after_updates(3)
        assert run.wait(600.0) == 0, run.output
    assert run.output.strip().splitlines()[-1].startswith("solved"), run.output
    account = json.loads((run.folder / "segments.json").read_text())
    assert account["lost"] == 0 and account["learned"] > 0
    assert run.tracebacks() == {}
    names = {path.name for path in (run.folder / "logs").iterdir()}
    assert names == {"learner.log", "actor-0.log", "actor-1.log", "env-0.log", "env-1.log"}
