"""Tests that samplers collect only the fields that the algorithm asks for, which changes no other field or update."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

import envs
from agents import Policy, Trajectory, build_algorithm, build_policy
from agents.trajectories import CUT_OBSERVATION, ON_REQUEST
from agents.trees import spec_of
from envs import EnvSettings
from envs.rewards import Rewards
from warren.errors import UnknownName
from warren.trees import leaves
from workers.env.group import Group
from workers.gateway.fakes.buffer import RandomSampler
from workers.gateway.game import Game
from workers.gateway.sampler import GatewaySampler
from workers.rollout.asked import fields_asked
from workers.rollout.games.selfplay_sampler import MatchSampler
from workers.rollout.separate_samplers import SeparateSamplers
from workers.rollout.served.sampler import ServedSampler
from workers.rollout.vector_sampler import VectorSampler

pytestmark = pytest.mark.usefixtures("one_thread")

Fields = Collection[str] | None
NETWORKS: dict[str, dict[str, Any]] = {
    "separate": {},
    "shared": {"shared": True},
    "recurrent": {"core": {"name": "lstm", "size": 4}},
    "recurrent, shared": {"core": {"name": "gru", "size": 4}, "shared": True},
}
CUT = EnvSettings("CartPole-v1", {"max_episode_steps": 7}, vectorization="sync")
LENGTH, SLOTS = 12, 3
FEW = {"appo": {"minibatch_size": 24}, "ppo": {"minibatch_size": 24}}


def of_network(name: str, observations: Any, actions: Any) -> Policy:
    return build_policy({"hidden_sizes": [8], **NETWORKS[name]}, observations, actions, 5)


def stepped(network: str, fields: Fields) -> tuple[Policy, list[Trajectory]]:
    vector_env = envs.make_vector(CUT, SLOTS, 3)
    policy = of_network(network, vector_env.single_observation_space, vector_env.single_action_space)
    sampler = VectorSampler(vector_env, policy, 3, fields=fields)
    sampler.load(policy.state_dict(), 4)
    return policy, [sampler.collect(LENGTH) for _ in range(2)]


def separately(network: str, fields: Fields) -> tuple[Policy, list[Trajectory]]:
    policy = of_network(network, *envs.spaces(CUT))

    def make(seed: int, policy: Policy) -> VectorSampler:
        return VectorSampler(envs.make_vector(CUT, 1, seed), policy, seed, fields=fields)

    sampler = SeparateSamplers(range(SLOTS), policy, make)
    sampler.load(policy.state_dict(), 4)
    return policy, [sampler.collect(LENGTH) for _ in range(2)]


def served(network: str, fields: Fields) -> tuple[Policy, list[Trajectory]]:
    policy = of_network(network, *envs.spaces(CUT))
    sampler = ServedSampler(policy, LENGTH, SLOTS, 3, fields=fields)
    sampler.load(policy.state_dict(), 4)
    group, found = Group("a", CUT, SLOTS, 3), []
    for _ in range(2):
        while not sampler._complete:
            (answer,) = sampler.act([group.call()])
            assert isinstance(answer, dict)
            group.step(answer)
        found.append(sampler.collect(LENGTH))
    return policy, found


def driven(network: str, fields: Fields) -> tuple[Policy, list[Trajectory]]:
    """Play episodes of a gateway: every other one is cut off at an observation, the rest are abandoned."""
    observations = Box(-10, 10, (2,), np.float32)
    policy = of_network(network, observations, Discrete(3))
    sampler = GatewaySampler(policy, LENGTH, 2, Rewards(), 3, fields=fields)
    sampler.load(policy.state_dict(), 4)

    async def play() -> None:
        for episode in range(8):
            game = Game("a", sampler, spec_of(observations), Rewards(), asyncio.get_running_loop())
            for step in range(5):
                await game.act([float(episode), float(step)], "")
                game.reward(step, "")
            if episode % 2:
                game.abandon()
            else:
                game.over("", [float(episode), 9.0])

    asyncio.run(play())
    trajectory = sampler.collect(LENGTH)
    sampler.close()
    assert trajectory.truncated.sum() == 5
    return policy, [trajectory]


def in_turns(network: str, fields: Fields) -> tuple[Policy, list[Trajectory]]:
    games = envs.make_two_player("openspiel:kuhn_poker", 16, 3)
    policy = of_network(network, games.single_observation_space, games.single_action_space)
    sampler = MatchSampler(games, policy, 3, unroll_length=LENGTH, tables=2, fields=fields)
    sampler.load(policy.state_dict(), 4)
    return policy, [sampler.collect(SLOTS) for _ in range(2)]


def made_up(network: str, fields: Fields) -> tuple[Policy, list[Trajectory]]:
    policy = of_network(network, *envs.spaces(CUT))
    sampler = RandomSampler(policy, SLOTS, 3, 2, fields=fields)
    sampler.load(policy.state_dict(), 4)
    return policy, [sampler.collect(LENGTH)]


WAYS: dict[str, Callable[[str, Fields], tuple[Policy, list[Trajectory]]]] = {
    "stepped": stepped, "separately": separately, "served": served, "driven": driven, "in turns": in_turns,
    "made up": made_up,
}  # fmt: skip


def needs_of(algorithm: str, policy: Policy) -> Any:
    return build_algorithm(algorithm, FEW.get(algorithm, {}), policy, 1).needs


def arrays(trajectory: Trajectory) -> dict[str, np.ndarray]:
    return {path: array for path, array in leaves(trajectory.to_dict()) if path}


@pytest.mark.usefixtures("by_torch")  # values depend less on the size of the batch
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("algorithm", ["a2c", "impala", "ppo"])
def test_fields_not_asked_for_are_not_collected_and_all_others_are_the_same(algorithm, way, network):
    policy, whole = WAYS[way](network, None)
    fields = needs_of(algorithm, policy).fields
    again, asked = WAYS[way](network, fields)
    legal = way == "in turns"
    for with_all, found in zip(whole, asked, strict=True):
        Trajectory.from_dict(found.to_dict(), again.spec(legal, fields=fields))
        before, after = arrays(with_all), arrays(found)
        assert before.keys() - after.keys() == {name for name in ON_REQUEST if name not in fields}
        assert not after.keys() - before.keys()
        for path, array in after.items():
            exact = not (way == "driven" and path == "cut.value" and "extras.value" not in fields)
            compare = np.testing.assert_array_equal if exact else np.testing.assert_allclose
            compare(array, before[path], err_msg=path)
            assert array.dtype == before[path].dtype


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("way", ["stepped", "served", "in turns"])
@pytest.mark.parametrize("algorithm", ["a2c", "impala", "appo", "ppo"])
def test_updates_are_the_same_bit_for_bit(algorithm, way, network):
    def learned(fields: Fields) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
        policy, collected = WAYS[way](network, fields)
        learner = build_algorithm(algorithm, {"entropy_coefficient": 0.01, **FEW.get(algorithm, {})}, policy, 1)
        metrics = [learner.update([trajectory]).metrics for trajectory in collected][-1]
        return policy.state_dict(), metrics

    policy, _ = WAYS[way](network, None)
    (whole, metrics), (asked, again) = learned(None), learned(needs_of(algorithm, policy).fields)
    assert all(torch.equal(whole[name], tensor) for name, tensor in asked.items()) and metrics == again
    assert any(not torch.equal(asked[name], tensor) for name, tensor in policy.state_dict().items())


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("way", ["stepped", "served", "in turns"])
def test_a_value_not_asked_for_is_computed_only_by_recurrent_networks(way, network, monkeypatch):
    monkeypatch.setitem(globals(), "CUT", EnvSettings("CartPole-v1", {}, vectorization="sync"))  # nothing is cut off
    computed: list[str] = []
    make = of_network

    def watched(*given: Any) -> Policy:
        policy = make(*given)
        for name in ("step", "value"):
            compute = getattr(policy.network, name)
            setattr(
                policy.network, name, lambda *given, n=name, compute=compute: (computed.append(n), compute(*given))[1]
            )
        return policy

    monkeypatch.setitem(globals(), "of_network", watched)
    WAYS[way](network, None)
    assert computed
    computed.clear()
    WAYS[way](network, ("extras.log_prob", "cut.value"))
    assert set(computed) == ({"step"} if "recurrent" in network else set())


OWN = """
from agents import Needs
from agents.algorithms import ppo

class Silent(ppo.PPO):
    needs = Needs()

def build(settings, policy, seed):
    return Silent(policy, ppo.PPOConfig(), seed)
"""


def test_a_users_algorithm_gets_the_fields_it_names_or_all(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    policy = of_network("separate", Box(-1, 1, (4,), np.float32), Discrete(2))
    before = {name: tensor.clone() for name, tensor in policy.state_dict().items()}

    def asked(name: str) -> list[str]:
        return fields_asked({"name": name}, policy)

    reinforce = Path(__file__).parents[3] / "examples" / "algorithms" / "reinforce.py"
    assert asked(f"{reinforce}:build") == asked("a2c") == ["cut.value"]
    assert asked(f"{tmp_path}/own.py:build") == list(ON_REQUEST)
    assert asked("impala") == asked("appo") == ["extras.log_prob", "cut.value"] and asked("ppo") == list(ON_REQUEST)
    assert all(torch.equal(tensor, before[name]) for name, tensor in policy.state_dict().items())
    with pytest.raises(UnknownName):
        asked("impalla")


@pytest.mark.parametrize("way", WAYS)
def test_every_sampler_keeps_the_observations_at_which_episodes_were_cut_off(way):
    policy, trajectories = WAYS[way]("separate", (CUT_OBSERVATION,))
    for trajectory in trajectories:
        checked = Trajectory.from_dict(trajectory.to_dict(), policy.spec(way == "in turns", fields=(CUT_OBSERVATION,)))
        for (step, slot), last in zip(checked.cut_at, checked.cut_observation, strict=True):
            assert not np.array_equal(last, checked.observation[step, slot]), "it is the one after it"
            if way in ("stepped", "separately", "served"):  # CartPole: it is one step of velocity further
                x, velocity = checked.observation[step, slot][:2]
                assert last[0] == pytest.approx(x + 0.02 * velocity, abs=1e-5)
    assert way in ("in turns", "made up") or sum(len(trajectory.cut_at) for trajectory in trajectories)
