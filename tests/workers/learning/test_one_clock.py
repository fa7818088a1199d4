"""Tests that schedules of learners that train together advance as one learner's do, in processes joined by gloo."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import redis
import support
import torch
from support.learner_run import Run
from support.learners_of_processes import LEFT_AFTER, SHARES, UPDATES, figures, places, segment, trainer_of
from support.waiting import PATIENCE, until

from agents.checkpoints import weights_from_bytes

SCRIPT = support.FOLDER / "learners_of_processes.py"
STARTED = 5 * PATIENCE  # three processes import torch at once
LEFT = range(len(SHARES) - 1)  # the last learner leaves


def alone(folder: Path) -> tuple[Any, list[dict[str, float]]]:
    """Train one learner on the segments of all; return its trainer and its figures after each update."""
    run = Run(folder)
    trainer, seen = trainer_of(run, folder), []
    for update in range(UPDATES):
        learners = range(len(SHARES)) if update < LEFT_AFTER else LEFT
        parts = [place for learner in learners for place in places(learner)]
        payloads = [segment(run, update, place, trainer.progress.version) for place in parts]
        assert trainer.learn([payloads]) == [None]
        seen.append(figures(trainer))
    return trainer, seen


@pytest.mark.usefixtures("one_thread")
def test_learners_with_unequal_shares_anneal_as_one_learner_when_one_leaves(
    redis_url: str, run_name: str, tmp_path: Path
) -> None:
    client = redis.Redis.from_url(redis_url)
    commands = [
        [sys.executable, str(SCRIPT), redis_url, run_name, str(learner), str(tmp_path)]
        for learner in range(len(SHARES))
    ]
    processes = [subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}) for command in commands]

    def at_all(key: str, learners: range, least: int) -> bool:
        assert all(process.poll() is None for process in processes[: learners.stop]), "a learner has ended early"
        return all(len(client.lrange(f"{run_name}:{key}:{learner}", 0, -1)) >= least for learner in learners)

    try:
        for made in range(1, LEFT_AFTER + 1):
            until(
                lambda made=made: at_all("seen", range(len(SHARES)), made), f"update {made} of three learners", STARTED
            )
        client.set(f"{run_name}:leave", "", ex=600)
        for made in range(LEFT_AFTER + 1, UPDATES + 1):
            until(lambda made=made: at_all("seen", LEFT, made), f"update {made} of two learners")
        until(lambda: at_all("weights", LEFT, 1), "the weights of both")
    finally:
        for key in ("leave", "end"):
            client.set(f"{run_name}:{key}", "", ex=60)
        for process in processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    (tmp_path / "alone").mkdir()
    one, expected = alone(tmp_path / "alone")
    assert len({moment["rate"] for moment in expected}) == UPDATES
    for learner in LEFT:
        seen = [json.loads(line) for line in client.lrange(f"{run_name}:seen:{learner}", 0, -1)]
        assert seen == expected
        weights, _ = weights_from_bytes(client.lindex(f"{run_name}:weights:{learner}", 0))
        for name, tensor in one.state.policy.state_dict().items():
            torch.testing.assert_close(weights[name], tensor, rtol=1e-3, atol=1e-5, msg=name)
    client.delete(*client.scan_iter(f"{run_name}:*"))
