"""IMPALA on unrolls drawn from a replay: V-trace corrects for the older weights that produced them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from support.experience import random_trajectory

from agents import Batch, Trajectory, build_algorithm, build_policy
from agents.algorithms import batches
from agents.algorithms.contract import QUEUE, UNIFORM
from agents.replay import ReplayBuffer
from warren.errors import ConfigurationError


def make(**settings: object):  # type: ignore[no-untyped-def]
    policy = build_policy({"hidden_sizes": [16]}, Box(-1, 1, (4,), np.float32), Discrete(3), 3)
    return build_algorithm("impala", {"learning_rate": 0.02, "entropy_coefficient": 0.0, **settings}, policy, 3)


def test_impala_asks_for_a_replay_if_replay_length_is_set() -> None:
    assert make().needs.source == QUEUE and "cut.value" in make().needs.fields
    drawing = make(replay_length=5, burn_in=2).needs
    assert (drawing.source, drawing.length, drawing.burn_in) == (UNIFORM, 5, 2)
    assert "cut.observation" in drawing.fields and "cut.value" not in drawing.fields, "cut.value is of outdated weights"
    provided = {"extras.log_prob", "extras.value", "last.observation", "last.value", "cut.value", "memory"}
    assert drawing.problems("impala", provided, "streaming", 100) == []
    with pytest.raises(ConfigurationError, match="replay_length=0 of impala must be at least 1 or null"):
        make(replay_length=0)


@pytest.mark.parametrize("optimizer", ["adam", "rmsprop"])
def test_impala_learns_from_unrolls_of_older_weights(optimizer: str, one_thread: None) -> None:
    algorithm = make(replay_length=5, optimizer=optimizer, learning_rate=0.005)
    buffer = ReplayBuffer(capacity=2048, length=5)
    for number in range(12):
        trajectory = random_trajectory(algorithm.policy, steps=16, envs=8, seed=100 * number)
        trajectory.terminated[:], trajectory.truncated[:] = True, False  # a bandit
        trajectory.reward[:] = trajectory.action == 2
        buffer.add(trajectory, "actor", number)
        metrics = [algorithm.update(Batch([buffer.draw(32).trajectory])).metrics for _ in range(8)]
    assert all(np.isfinite(value) for one in metrics for value in one.values())
    assert metrics[-1]["rho"] < 0.95, "data of older weights must be corrected"
    observation = np.random.default_rng(0).uniform(-1, 1, (200, 4)).astype(np.float32)
    assert (algorithm.policy.step(observation, mode="greedy").action == 2).mean() > 0.95


@pytest.mark.parametrize("scale_rewards", [False, True])
def test_drawn_unrolls_in_which_no_agent_decides_change_nothing(scale_rewards: bool) -> None:
    algorithm = make(replay_length=2, scale_rewards=scale_rewards)
    stored = random_trajectory(algorithm.policy, steps=8, envs=1)
    stored.valid = np.arange(8)[:, None] < 2  # the agent leaves early
    stored.terminated, stored.truncated = stored.terminated | ~stored.valid, np.zeros((8, 1), np.bool_)
    buffer = ReplayBuffer(capacity=8, length=2, unrolls=True)
    buffer.add(with_cuts(stored, 1), "actor", 0)
    before = [part.clone() for part in algorithm.policy.parameters()]
    assert algorithm.update(Batch([buffer.of_items(np.array([4])).trajectory])).metrics == {"learning_rate": 0.02}
    assert all(torch.equal(*pair) for pair in zip(algorithm.policy.parameters(), before, strict=True))
    assert "entropy" in algorithm.update(Batch([buffer.of_items(np.array([1])).trajectory])).metrics


def with_cuts(trajectory: Trajectory, seed: int) -> Trajectory:
    """Add the observations at which episodes were cut off, as a replay does."""
    at = np.argwhere(trajectory.truncated)
    seen = np.random.default_rng(seed).normal(size=(len(at), 4)).astype(np.float32)
    trajectory.cuts, trajectory.cut = (at, {"observation": seen}), {}
    return trajectory


def test_a_truncated_episode_bootstraps_from_the_learners_value(one_thread: None) -> None:
    algorithm = make(replay_length=1, gamma=0.9, learning_rate=0.01)
    stored = random_trajectory(algorithm.policy, steps=1, envs=8)
    stored.truncated[:], stored.terminated[:], stored.reward[:] = True, False, 1
    stored = with_cuts(stored, 0)
    stored.cut_observation = stored.observation[0]
    for _ in range(300):
        algorithm.update(Batch([stored]))
    assert algorithm.policy.value(stored.observation[0]) == pytest.approx(np.full(8, 10.0), rel=0.1)


@pytest.mark.parametrize("core", [None, {"name": "gru", "size": 4}])
def test_values_at_cuts_use_the_memory_at_that_step(core: dict[str, object] | None, one_thread: None) -> None:
    policy = build_policy({"hidden_sizes": [16], "core": core}, Box(-1, 1, (4,), np.float32), Discrete(3), 3)
    burn_in, drawn = 3 if core else 0, []
    for seed in (0, 1):
        played = random_trajectory(build_policy({}, policy.observation_space, policy.action_space, 0), 12, 3, seed, 0.6)
        played.memory = {name: np.ones((3, *shape), np.float32) for name, shape in policy.network.memory.items()}
        drawn.append(with_cuts(played, seed))
    found = batches.Batch(policy, drawn, True, burn_in).unroll(policy)[0].final_value
    expected = torch.zeros(12 - burn_in, 6)
    for number, played in enumerate(drawn):
        for row, (step, slot) in enumerate(played.cut_at.tolist()):
            ended = (played.terminated | played.truncated)[:, slot]
            memory = {name: torch.tensor(part[[slot]]) for name, part in played.memory.items()}
            for before in range(step + 1):
                begins = torch.tensor([[bool(before and ended[before - 1])]])
                seen = torch.tensor(played.observation[before, slot])[None, None]
                memory = policy.remember(seen, memory, begins) if core else {}
            if step >= burn_in:
                value = policy.network.value(torch.tensor(played.cut_observation[[row]]), memory)
                expected[step - burn_in, 3 * number + slot] = value.item()
    assert (expected != 0).sum() > 8
    torch.testing.assert_close(found, expected)
