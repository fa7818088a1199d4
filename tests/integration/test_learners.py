"""Tests of several learners of one player: they train together, and go on when one is killed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.training_run import TrainingRun

from workers.servers import Servers

SETTINGS = ("learners=2", "env.num_envs=4", "env.goal=null", "unroll_length=32", "network.hidden_sizes=[16]",
            "algorithm.epochs=2", "algorithm.minibatch_size=64")  # fmt: skip


def learner(run: TrainingRun, number: int) -> psutil.Process:
    def is_it(line: list[str]) -> bool:
        text = " ".join(line)  # Celery renames processes in some installations
        return ("workers.learner" in text or ": learner" in text) and ("learner_id=1" in text) == bool(number)

    found: psutil.Process = run.until(lambda: next(iter(run.children(is_it)), None))
    return found


def until_it_is_back(run: TrainingRun, number: int) -> None:
    name = "learner-1" if number else "learner"
    log = run.folder / "logs" / f"{name}.log"
    run.until(lambda: f"{name} ended with status 137" in run.output)
    run.until(lambda: len(re.findall(r"rank \d of 2, generation", log.read_text())) >= 2)


def weights_at_the_end(run: TrainingRun) -> list[str]:
    """Return the hash of each learner's last weights, from their logs."""
    logs = [(run.folder / "logs" / f"{name}.log").read_text() for name in ("learner", "learner-1")]
    return [re.findall(r"ends with weights (\w+)", log)[-1] for log in logs]


@pytest.mark.slow
def test_two_learners_share_one_queue_and_training_outlives_each_of_them(
    tmp_path: Path, servers: Servers, rabbitmqctl: Callable[..., list[str]]
) -> None:
    urls: dict[str, Any] = {"broker_url": servers.broker_url, "redis_url": servers.redis_url}
    with TrainingRun(tmp_path, *SETTINGS, "sampling=streaming", "total_steps=1000000000", **urls) as run:
        run.after_updates(3)
        run.until(lambda: f"warren.{run.name}.learner.main\t2" in rabbitmqctl("list_queues", "name", "consumers"))
        for number in (1, 0):
            learner(run, number).kill()
            until_it_is_back(run, number)
            run.after_updates(3)
        run.process.send_signal(2)
        assert run.wait() == 130
    assert run.account()["learned"] > 0
    versions = [update["version"] for update in run.metrics()]
    assert versions == sorted(set(versions))


@pytest.mark.slow
def test_gathered_learners_end_with_the_same_weights_and_those_left_go_on_alone(
    tmp_path: Path, servers: Servers
) -> None:
    urls: dict[str, Any] = {"broker_url": servers.broker_url, "redis_url": servers.redis_url}
    with TrainingRun(tmp_path, *SETTINGS, "total_steps=3000", **urls) as run:
        assert run.wait() == 0, run.output
    left = weights_at_the_end(run)
    assert left[0] == left[1] == json.loads((run.folder / "outcome.json").read_text())["weights"]
    assert [update["steps"] for update in run.metrics()][:2] == [256, 512]
    assert run.account()["steps"]["learned"] == run.metrics()[-1]["steps"]
    more = ("on_rank_loss=continue", "total_steps=1000000000")
    with TrainingRun(tmp_path, *SETTINGS, *more, trial="continue", **urls) as run:
        run.after_updates(2)
        learner(run, 1).kill()
        run.until(lambda: "learner-1 is not started again; the run goes on without it" in run.output)
        run.after_updates(5)
