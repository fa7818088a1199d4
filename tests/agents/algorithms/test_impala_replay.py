"""IMPALA on unrolls drawn from a replay: V-trace corrects for the weights that made them, however old."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from support.experience import random_trajectory

from agents import Batch, build_algorithm, build_policy
from agents.algorithms.contract import QUEUE, UNIFORM
from agents.replay import ReplayBuffer
from warren.errors import ConfigurationError


def make(**settings: object):  # type: ignore[no-untyped-def]
    policy = build_policy({"hidden_sizes": [16]}, Box(-1, 1, (4,), np.float32), Discrete(3), 3)
    return build_algorithm("impala", {"learning_rate": 0.02, "entropy_coefficient": 0.0, **settings}, policy, 3)


def test_it_asks_for_a_replay_where_a_length_is_given() -> None:
    assert make().needs.source == QUEUE
    drawing = make(replay_length=5, burn_in=2).needs
    assert (drawing.source, drawing.length, drawing.burn_in) == (UNIFORM, 5, 2)
    provided = {"extras.log_prob", "extras.value", "last.observation", "last.value", "cut.value", "memory"}
    assert drawing.problems("impala", provided, "streaming", 100) == []
    with pytest.raises(ConfigurationError, match="replay_length=0 of impala must be at least 1 or null"):
        make(replay_length=0)


@pytest.mark.parametrize("optimizer", ["adam", "rmsprop"])
def test_it_learns_what_is_rewarded_from_unrolls_of_older_weights(optimizer: str, one_thread: None) -> None:
    algorithm = make(replay_length=5, optimizer=optimizer, learning_rate=0.005)
    buffer = ReplayBuffer(capacity=2048, length=5)
    for number in range(12):
        trajectory = random_trajectory(algorithm.policy, steps=16, envs=8, seed=100 * number)
        trajectory.terminated[:], trajectory.truncated[:] = True, False  # a bandit
        trajectory.reward[:] = trajectory.action == 2
        buffer.add(trajectory, "actor", number)
        metrics = [algorithm.update(Batch([buffer.draw(32).trajectory])).metrics for _ in range(8)]
    assert all(np.isfinite(value) for one in metrics for value in one.values())
    assert metrics[-1]["rho"] < 0.95, "the data of all weights so far are corrected"
    observation = np.random.default_rng(0).uniform(-1, 1, (200, 4)).astype(np.float32)
    assert (algorithm.policy.step(observation, mode="greedy").action == 2).mean() > 0.95
