"""Tests that an environment's episodes depend neither on others nor on their division among actors."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import pytest

import envs
from agents import Policy, Trajectory, build_policy
from agents.trajectories import concatenate
from warren.trees import leaves
from workers.config.schema import Config, EnvConfig
from workers.rollout.actor import ActorRole
from workers.rollout.separate_samplers import SeparateSamplers
from workers.rollout.vector_sampler import VectorSampler
from workers.runtime.session import PLAYER

SETTINGS = envs.EnvSettings("CartPole-v1")
NETWORKS = [{"hidden_sizes": [32]}, {"hidden_sizes": [16], "core": {"name": "gru", "size": 8}}]


def samplers(seeds: range, network: dict[str, object]) -> SeparateSamplers:
    def make(seed: int, policy: Policy) -> VectorSampler:
        return VectorSampler(envs.make_vector(SETTINGS, 1, seed), policy, seed, SETTINGS.id)

    return SeparateSamplers(seeds, build_policy(network, *envs.spaces(SETTINGS), 1), make)


def arrays(trajectory: Trajectory) -> dict[str, np.ndarray]:
    return {path: np.asarray(leaf) for path, leaf in leaves(trajectory.to_dict())}


@pytest.mark.parametrize("network", NETWORKS, ids=["steps", "memory"])
def test_one_actor_plays_what_several_with_a_share_each_play(network: dict[str, object], one_thread: None) -> None:
    whole, parts = samplers(range(6), network), [samplers(range(0, 2), network), samplers(range(2, 6), network)]
    for version in range(3):
        for each in (whole, *parts):
            each.load(each.policy.state_dict(), version)
        one, other = arrays(whole.collect(40)), arrays(concatenate([part.collect(40) for part in parts]))
        assert one.keys() == other.keys()
        assert all(np.array_equal(array, other[path]) for path, array in one.items())
        assert one["version"].tolist() == [version] * 6
        assert len({array.tobytes() for array in np.moveaxis(one["observation"], 1, 0)}) == 6, "each plays its own"
    for each in (whole, *parts):
        each.close()


def actor(number: int, actors: int, environments: int, settings: Mapping[str, Any]) -> SeparateSamplers:
    """Return the samplers of one actor of a deterministic run."""
    role: Any = object.__new__(ActorRole)
    env = EnvConfig(id=settings["env"], num_envs=environments)
    role.config = Config(env=env, actors=actors, network=settings["network"], deterministic=True)
    role.number, role.asked, role._times_made = number, {PLAYER: []}, itertools.count()
    return cast(SeparateSamplers, role._make_separate_samplers())


EXPLORED: list[dict[str, Any]] = [
    {
        "env": "CartPole-v1",
        "network": {"discrete_actions": {"greedy": True}},
        "behaviour": {"epsilon": 0.4, "epsilon_alpha": 7.0},
    },
    {
        "env": "Pendulum-v1",
        "network": {"box_actions": {"deterministic": True}},
        "behaviour": {"noise": 0.3, "noise_theta": 0.15},
    },
]


@pytest.mark.parametrize("settings", EXPLORED, ids=["epsilons", "noise"])
def test_an_environment_is_explored_alike_in_any_actor(settings: Mapping[str, Any], one_thread: None) -> None:
    made = [actor(*whose, settings) for whose in ((0, 1, 4), (0, 2, 2), (1, 2, 2))]
    for version in range(2):
        for each in made:
            each.load(each.policy.state_dict(), version, settings["behaviour"])
        whole, *parts = (each.collect(40).action for each in made)
        np.testing.assert_array_equal(whole, np.concatenate(parts, axis=1))
    for each in made:
        each.close()
