"""Tests that a seed determines the weights in every run, with one actor or two."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from support.training_run import TrainingRun

from workers.servers import Servers

SETTINGS = (
    *("deterministic=true", "unroll_length=32", "total_steps=1000", "env.goal=null", "network.hidden_sizes=[16]"),
    *("algorithm.minibatch_size=64", "algorithm.epochs=2"),
)


@pytest.mark.slow
def test_weights_are_equal_bit_for_bit_however_environments_are_divided(tmp_path: Path, servers: Servers) -> None:
    urls: dict[str, Any] = {"broker_url": servers.broker_url, "redis_url": servers.redis_url}
    divided = {"one": ("actors=1", "env.num_envs=4"), "two": ("actors=2", "env.num_envs=2")}
    left: dict[str, Any] = {}
    with ExitStack() as stack:
        runs = {
            name: stack.enter_context(TrainingRun(tmp_path, *SETTINGS, *how, trial=name, **urls))
            for name, how in divided.items()
        }
        for name, run in runs.items():
            assert run.wait() == 0, run.output
            outcome = json.loads((run.folder / "outcome.json").read_text())
            losses = [(update["steps"], update["losses"], update["mean_return"]) for update in run.metrics()]
            left[name] = outcome["weights"], outcome["steps"], losses
            assert outcome["timing"]["update"]["times"] == len(losses) == 8
    assert left["one"] == left["two"]


@pytest.mark.slow
def test_two_learners_make_the_same_weights_run_after_run(tmp_path: Path, servers: Servers) -> None:
    urls: dict[str, Any] = {"broker_url": servers.broker_url, "redis_url": servers.redis_url}
    settings = (*SETTINGS, "learners=2", "actors=2", "env.num_envs=2", "total_steps=500")
    with ExitStack() as stack:
        runs = [stack.enter_context(TrainingRun(tmp_path, *settings, trial=trial, **urls)) for trial in ("a", "b")]
        for run in runs:
            assert run.wait() == 0, run.output
    outcomes = [json.loads((run.folder / "outcome.json").read_text()) for run in runs]
    assert outcomes[0]["steps"] == 512
    assert outcomes[0]["weights"] == outcomes[1]["weights"]
    assert [[update["losses"] for update in run.metrics()] for run in runs[:1]] == [
        [update["losses"] for update in run.metrics()] for run in runs[1:]
    ]
