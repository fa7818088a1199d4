"""The same seed makes the same weights, run after run, by one actor or by two."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from integration.training_run import TrainingRun

from workers.servers import Servers

SETTINGS = (
    *("deterministic=true", "unroll_length=32", "total_steps=1000", "env.goal=null", "network.hidden_sizes=[16]"),
    *("algorithm.minibatch_size=64", "algorithm.epochs=2"),
)


@pytest.mark.slow
def test_weights_are_the_same_bit_for_bit_however_environments_are_divided(tmp_path: Path, servers: Servers) -> None:
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
