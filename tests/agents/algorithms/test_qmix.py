"""QMIX: updates against a plain implementation, on groups of agents that a replay draws together; learning."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support.plain_qmix import PlainQMIX

import envs
from agents import Batch, build_algorithm, build_policy
from agents.replay import ReplayBuffer
from envs import EnvSettings
from warren.errors import ConfigurationError
from workers.rollout.vector_sampler import VectorSampler

AGENTS = 3
LAMPS = EnvSettings("examples/agents/lamps.py:Lamps", state=True, agent_id=True)
pytestmark = pytest.mark.usefixtures("one_thread")


def made(games: int = 4, network: dict[str, Any] | None = None, **settings: Any) -> tuple[Any, VectorSampler]:
    vector = envs.make_vector(LAMPS, games, 1)
    greedy = {"privileged": ["state"], "value": False, "discrete_actions": {"greedy": True}, "policy_gain": 1.0}
    config = {"hidden_sizes": [16], **greedy, **(network or {})}
    policy = build_policy(config, vector.single_observation_space, vector.single_action_space, 1)
    algorithm = build_algorithm("qmix", settings, policy, 1)
    policy.behaviour = {"epsilon": 1.0}
    return algorithm, VectorSampler(vector, policy, 2, fields=algorithm.needs.fields)


def stored(algorithm: Any, sampler: VectorSampler, capacity: int = 4000, **options: Any) -> ReplayBuffer:
    buffer = ReplayBuffer(capacity, algorithm.needs.length, seed=3, groups=True, **options)
    for number in range(8):
        buffer.add(sampler.collect(25), "a", number)
    return buffer


@pytest.mark.parametrize("capacity", [4000, 1000])  # 1000: the buffer wraps around
@pytest.mark.parametrize("exponent", [None, 0.6])
def test_the_agents_of_a_game_are_drawn_together_at_the_same_step(capacity: int, exponent: float | None) -> None:
    algorithm, sampler = made()
    buffer = stored(algorithm, sampler, capacity, priority_exponent=exponent)
    draw = buffer.draw(200, 0.4)
    drawn = draw.trajectory
    assert drawn.group.tolist() == np.arange(200).repeat(AGENTS).tolist()
    state, agent = drawn.observation["state"], drawn.observation["agent"]
    state = state.reshape(2, 200, AGENTS, -1)
    alive = drawn.valid.reshape(2, 200, AGENTS)
    assert alive.any(2).all()
    assert (agent.reshape(2, 200, AGENTS)[alive] == np.broadcast_to(np.arange(AGENTS), (2, 200, AGENTS))[alive]).all()
    for step in range(2):
        for game in range(200):
            assert len(np.unique(state[step, game][alive[step, game]], axis=0)) == 1, "a group is one step of one game"
    if exponent is not None:
        assert draw.weights.shape == (200 * AGENTS,)
        buffer.set_priorities(draw, np.ones(200 * AGENTS, np.float32))


def test_the_mixer_has_a_rate_of_its_own_by_its_name() -> None:
    algorithm, sampler = made(learning_rates={"mixer.": 0.0})
    before = {name: part.clone() for name, part in algorithm.modules["mixer"].state_dict().items()}
    draw = stored(algorithm, sampler).draw(20)
    policy = [part.clone() for part in algorithm.policy.parameters()]
    algorithm.update(Batch([draw.trajectory]))
    assert all(torch.equal(part, before[name]) for name, part in algorithm.mixer.state_dict().items())
    assert not all(torch.equal(*pair) for pair in zip(algorithm.policy.parameters(), policy, strict=True))
    with pytest.raises(ConfigurationError, match=r"name begins with 'network'; there are policy\.network"):
        made(learning_rates={"network": 2.0})


@pytest.mark.parametrize("mixing", ["monotonic", "sum"])
def test_updates_of_qmix_equal_a_plain_implementation(mixing: str) -> None:
    settings = {"mixing": mixing, "mixing_size": 5, "max_grad_norm": 0.05, "target_every": 2, "reward_offset": 0.7}
    algorithm, sampler = made(gamma=0.9, learning_rate=1e-2, **settings)
    buffer = stored(algorithm, sampler)
    plain = PlainQMIX(algorithm.policy.state_dict(), algorithm.mixer.state_dict(), AGENTS, gamma=0.9, rate=1e-2,
                      norm=0.05, delta=10.0, offset=0.7)  # fmt: skip
    kinds = np.zeros(3, int)
    for number in range(4):
        drawn = buffer.draw(60).trajectory
        ended = (drawn.terminated | drawn.truncated)[0].reshape(-1, AGENTS).all(1)
        cut = (drawn.truncated & ~drawn.terminated)[0].reshape(-1, AGENTS).any(1)
        kinds += [int((~ended).sum()), int((ended & ~cut).sum()), int((ended & cut).sum())]
        found = algorithm.update(Batch([drawn])).priorities
        np.testing.assert_allclose(found[::AGENTS], plain.update(drawn), rtol=1e-4, atol=1e-5)
        if number % 2:
            plain.target = {name: part.detach().clone() for name, part in plain.weights.items()}
    assert kinds.all(), "some games must go on, some end, some be cut off"
    state = algorithm.policy.state_dict() | algorithm.mixer.state_dict()
    for name, expected in plain.weights.items():
        torch.testing.assert_close(state[name].double(), expected.detach(), rtol=1e-4, atol=1e-5)


def test_values_are_pulled_to_the_returns_of_games_that_end_within_a_sequence() -> None:
    settings = {"gamma": 0.9, "learned": 7, "huber": 100.0, "reward_offset": 0.7, "mixing_size": 5}
    losses = {}
    for coefficient in (0.0, 0.25):
        algorithm, sampler = made(return_coefficient=coefficient, **settings)
        drawn = stored(algorithm, sampler).draw(60).trajectory
        weights = algorithm.policy.state_dict(), algorithm.mixer.state_dict()
        plain = PlainQMIX(*weights, AGENTS, gamma=0.9, rate=0.0, norm=1.0, delta=100.0, offset=0.7)
        differences = plain.off_returns(drawn)
        losses[coefficient] = algorithm.update(Batch([drawn])).metrics["value_loss"]
    lengths = [len(part) for part in differences]
    assert 0 in lengths and 7 in lengths and len(set(lengths)) > 4, "some games must go on, others end at several steps"
    pulled = 0.25 * sum(0.5 * one**2 for part in differences for one in part) / (60 * 7)
    assert losses[0.25] - losses[0.0] == pytest.approx(pulled, rel=1e-3)


@pytest.mark.parametrize("agent", range(AGENTS))
def test_a_games_value_is_monotonic_in_each_agents_value(agent: int) -> None:
    algorithm, _ = made()
    values, state = torch.randn(50, AGENTS), torch.randn(50, 14)
    higher = values.clone()
    higher[:, agent] += 1
    assert (algorithm.mixer(higher, state) >= algorithm.mixer(values, state)).all()


@pytest.mark.parametrize("network", [{}, {"core": {"name": "gru", "size": 8}}])
def test_qmix_resumes_exactly_from_its_state(network: dict[str, Any]) -> None:
    settings = {"learned": 4, "burn_in": 2} if network else {}
    (one, sampler), (other, _) = made(network=network, **settings), made(network=network, **settings)
    buffer = stored(one, sampler)
    one.update(Batch([buffer.draw(16).trajectory]))
    other.policy.load_state_dict(one.policy.state_dict())
    other.load_state(*one.state())
    batch = Batch([buffer.draw(16).trajectory])
    assert one.update(batch).metrics == other.update(batch).metrics
    assert all(torch.equal(a, b) for a, b in zip(one.mixer.parameters(), other.mixer.parameters(), strict=True))


def test_a_team_learns_to_light_its_lamps_sooner() -> None:
    network = {"hidden_sizes": [64], "activation": "relu", "policy_gain": None}
    algorithm, sampler = made(8, network, learning_rate=5e-3, target_every=20, gamma=0.9)
    buffer, lengths = ReplayBuffer(20_000, algorithm.needs.length, seed=3, groups=True), []
    for number in range(40):
        sampler.policy.behaviour = {"epsilon": max(0.05, 1 - number / 25)}
        trajectory = sampler.collect(20)
        lengths.append(trajectory.episodes[:, 1].mean())
        buffer.add(trajectory, "a", number)
        for _ in range(20):
            algorithm.update(Batch([buffer.draw(32).trajectory]))
    assert np.mean(lengths[:5]) > 11 and np.mean(lengths[-8:]) < 6, lengths


def test_qmix_requires_a_privileged_state_and_valid_settings() -> None:
    spaces = envs.spaces(EnvSettings("examples/agents/lamps.py:Lamps"))
    greedy = {"value": False, "discrete_actions": {"greedy": True}}
    with pytest.raises(ConfigurationError, match=r"set env\.agent_id=true, env\.state=true"):
        build_algorithm("qmix", {}, build_policy(greedy, *spaces, 1), 1)
    with pytest.raises(ConfigurationError, match=r"\+network\.privileged=\[state\]"):
        build_algorithm("qmix", {}, build_policy(greedy, *envs.spaces(LAMPS), 1), 1)
    with pytest.raises(ConfigurationError, match="n_steps=3 of qmix must be 1"):
        made(n_steps=3)
    with pytest.raises(ConfigurationError, match=r"return_coefficient=0\.1 of qmix must be .* 0 with learned=1"):
        made(return_coefficient=0.1)
