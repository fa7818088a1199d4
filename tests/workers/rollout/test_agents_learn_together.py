"""Tests of one policy for agents that learn together: its trajectories, and IPPO and MAPPO on the example's game."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import envs
from agents import Trajectory, build_algorithm, build_policy
from envs import EnvSettings
from workers.rollout.separate_samplers import SeparateSamplers
from workers.rollout.vector_sampler import VectorSampler

LAMPS = "examples/agents/lamps.py:Lamps"
CENTRAL: dict[str, Any] = {"privileged": ["state"]}


def sampler_of(games: int = 4, network: dict[str, Any] | None = None, **settings: Any) -> tuple[VectorSampler, Any]:
    vector = envs.make_vector(EnvSettings(LAMPS, **settings), games, 1)
    spaces = vector.single_observation_space, vector.single_action_space
    policy = build_policy({"hidden_sizes": [32], **(network or {})}, *spaces, 1)
    return VectorSampler(vector, policy, 2), policy


@pytest.mark.parametrize("core", [{}, {"core": {"name": "gru", "size": 8}}])
def test_steps_of_agents_that_left_are_not_valid_and_end_episodes(core: dict[str, Any]) -> None:
    sampler, policy = sampler_of(network=core)
    first, second = (
        Trajectory.from_dict(sampler.collect(50).to_dict(), policy.spec(legal_actions=True)) for _ in range(2)
    )
    assert first.valid is not None and first.group is not None and second.valid is not None
    assert first.group.tolist() == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3
    assert 0 < first.num_steps == first.valid.sum() < first.valid.size
    assert sampler.env_steps == first.num_steps + second.num_steps
    valid = np.concatenate([first.valid, second.valid[:1]])
    ended = first.terminated | first.truncated
    assert ended[~first.valid].all() and not first.reward[~first.valid].any()
    assert ended[first.valid & ~valid[1:]].all()  # an agent that leaves has ended
    by_game = valid.reshape(len(valid), 4, 3)
    assert by_game.any(2).all()  # an agent decides in each game at every step
    assert (first.episodes[:, 1] <= 20).all() and len(first.episodes) > 4


def test_the_value_sees_the_state_and_the_actions_do_not() -> None:
    sampler, policy = sampler_of(network=CENTRAL, state=True)
    trajectory = sampler.collect(10)
    assert trajectory.observation["state"].shape == (10, 12, 14)
    seen = {"observation": trajectory.observation["observation"][0]}
    other = {**seen, "state": trajectory.observation["state"][0][::-1].copy()}
    assert policy.observation_space.spaces.keys() == {"observation"}
    before = policy.value({**seen, "state": trajectory.observation["state"][0]})
    assert not np.allclose(policy.value(other), before)


def test_each_separate_game_is_a_group_of_its_own() -> None:
    settings = EnvSettings(LAMPS)
    policy = build_policy({}, *envs.spaces(settings), 1)

    def make(seed: int, policy: Any) -> VectorSampler:
        return VectorSampler(envs.make_vector(settings, 1, seed), policy, seed)

    trajectory = SeparateSamplers([3, 4], policy, make).collect(5)
    assert trajectory.group is not None and trajectory.group.tolist() == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize(
    ("network", "settings"),
    [({}, {"agent_id": True}), (CENTRAL, {"state": True, "team_reward": "mean"})],
    ids=["IPPO", "MAPPO"],
)
def test_three_agents_learn_to_light_their_lamps(
    network: dict[str, Any], settings: dict[str, Any], one_thread: None
) -> None:
    sampler, policy = sampler_of(8, network, **settings)
    given = {"learning_rate": 3e-3, "entropy_coefficient": 0.01, "minibatch_size": 128, "epochs": 4, "gamma": 0.95}
    ppo = build_algorithm("ppo", given, policy, 0)
    lengths = []
    for _ in range(45):
        trajectory = sampler.collect(32)
        lengths.append(trajectory.episodes[:, 1].mean())
        ppo.update([trajectory])
    assert np.mean(lengths[:3]) > 8 and np.mean(lengths[-8:]) < 5.5, lengths
