"""Explorers draw actions by an algorithm's behaviour; distributions of off-policy algorithms."""

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete

from agents import build_policy
from agents.policies.explorers import Explorer, at_rest
from agents.policies.segment import Segment
from warren.errors import ConfigurationError

SAC = {"squashed": True, "state_std": True}
SEEN = Box(-1, 1, (3,), np.float32)
MANY = 20_000


def policy_over(space, **network):
    return build_policy({"hidden_sizes": [8], "policy_gain": 1.0, **network}, SEEN, space, 1)


def seen(count=MANY):
    return np.zeros((count, 3), np.float32)


def shares(actions, count):
    return np.bincount(actions, minlength=count) / len(actions)


def test_without_an_exploring_behaviour_there_is_no_explorer():
    policy = policy_over(Discrete(3))
    assert policy.explorer is None
    segment = Segment(policy, torch.Generator())
    assert segment._draw == policy.distribution.sample
    policy.behaviour = {"temperature": 2.0}
    assert policy.explorer is None


def test_epsilon_draws_uniformly_among_legal_actions_and_else_the_likeliest():
    policy = policy_over(Discrete(4), discrete_actions={"greedy": True})
    mask = np.tile([True, True, False, True], (MANY, 1))
    best = policy.step(seen(1), mode="greedy", action_mask=mask[:1]).action[0]
    assert (policy.step(seen(), action_mask=mask).action == best).all()  # no behaviour is set: it does not explore
    policy.behaviour = {"epsilon": 0.3}
    drawn = shares(policy.step(seen(), action_mask=mask).action, 4)
    expected = np.where(mask[0], 0.1, 0.0) + np.where(np.arange(4) == best, 0.7, 0.0)
    np.testing.assert_allclose(drawn, expected, atol=0.015)


def test_given_noise_repeats_its_actions_with_the_right_probabilities():
    policy = policy_over(Discrete(4), discrete_actions={"greedy": True, "quantiles": 5})
    policy.behaviour = {"epsilon": 0.4}
    mask = np.tile([False, True, True, True], (MANY, 1))
    noise = np.random.default_rng(1).exponential(size=(MANY, 4)).astype(np.float32)
    first, again = (policy.step(seen(), action_mask=mask, noise=noise).action for _ in range(2))
    assert (first == again).all()
    best = policy.step(seen(1), mode="greedy", action_mask=mask[:1]).action[0]
    expected = np.where(mask[0], 0.4 / 3, 0.0) + np.where(np.arange(4) == best, 0.6, 0.0)
    np.testing.assert_allclose(shares(first, 4), expected, atol=0.015)


def test_epsilons_are_spread_over_actors_as_in_ape_x():
    behaviour = {"epsilon": 0.4, "epsilon_alpha": 7.0}
    of_each = [Explorer(behaviour, (index, 4)).epsilon for index in range(4)]
    assert of_each == pytest.approx([0.4 ** (1 + 7 * index / 3) for index in range(4)])
    assert Explorer(behaviour, (0, 1)).epsilon == pytest.approx(0.4)
    assert Explorer(behaviour, (9, 4)).epsilon == of_each[3]  # an actor that joined later


def test_all_parts_of_an_action_explore():
    policy = policy_over(Dict(move=Discrete(2), how=MultiDiscrete([2, 3])))
    policy.behaviour = {"epsilon": 1.0}
    action = policy.step(seen()).action
    np.testing.assert_allclose(shares(action["move"], 2), 1 / 2, atol=0.02)
    np.testing.assert_allclose(shares(action["how"][:, 1], 3), 1 / 3, atol=0.02)


def test_gaussian_noise_is_in_units_of_half_the_range_and_stays_in_bounds():
    space = Box(np.array([-2, 0], np.float32), np.array([2, 10], np.float32))
    policy = policy_over(space, box_actions={"deterministic": True})
    mode = policy.env_action(policy.step(seen(1), mode="greedy").action)[0]
    assert (policy.env_action(policy.step(seen(4)).action) == mode).all()
    policy.behaviour = {"noise": 0.05}
    acted = policy.env_action(policy.step(seen()).action)
    np.testing.assert_allclose(acted.std(0), [0.1, 0.25], rtol=0.05)
    np.testing.assert_allclose(acted.mean(0), mode, atol=0.02)
    policy.behaviour = {"noise": 5.0}
    acted = policy.env_action(policy.step(seen()).action)
    assert (acted >= space.low).all() and (acted <= space.high).all()


def test_noise_of_a_process_persists_over_steps_and_resets_with_an_episode():
    policy = policy_over(Box(-1, 1, (1,), np.float32), box_actions={"squashed": True})
    policy.behaviour = {"noise": 0.01, "noise_theta": 0.2}
    mode = np.tanh(policy.step(seen(1), mode="greedy").action)
    noises = []
    for _ in range(30):
        policy.behaviour = {"noise": 0.01, "noise_theta": 0.2}  # new weights set it again within an episode
        noises.append(np.tanh(policy.step(seen()).action) - mode)
    together = np.corrcoef(noises[-1].ravel(), noises[-2].ravel())[0, 1]
    assert together == pytest.approx(0.8, abs=0.03)
    assert noises[-1].std() == pytest.approx(0.01 / np.sqrt(1 - 0.8**2), rel=0.05)
    policy.drift = at_rest(policy.drift, np.arange(MANY) < MANY // 2)
    after = np.tanh(policy.step(seen()).action) - mode
    assert after[: MANY // 2].std() == pytest.approx(0.01, rel=0.05)
    assert after[MANY // 2 :].std() > 0.015


@pytest.mark.parametrize(
    "box", [{"deterministic": True}, {"squashed": True}, {"squashed": True, "state_std": True}, {}]
)
def test_a_box_is_explored_uniformly_between_its_bounds(box):
    policy = policy_over(Box(-3, 5, (2,), np.float32), box_actions=box)
    policy.behaviour = {"epsilon": 1.0}
    acted = policy.env_action(policy.step(seen()).action)
    np.testing.assert_allclose(np.quantile(acted, [0.25, 0.5, 0.75], axis=0), [[-1, -1], [1, 1], [3, 3]], atol=0.15)


@pytest.mark.parametrize(("low", "high"), [(-np.inf, np.inf), (0, np.inf)])
def test_a_box_without_bounds_is_not_explored_uniformly(low, high):
    policy = policy_over(Box(low, high, (2,), np.float32))
    policy.behaviour = {"epsilon": 0.1}
    with pytest.raises(
        ConfigurationError, match="epsilon draws actions of a Box evenly between its bounds, and not all"
    ):
        policy.step(seen(1))


def test_discrete_actions_take_no_gaussian_noise():
    policy = policy_over(Discrete(2))
    policy.behaviour = {"noise": 0.1}
    with pytest.raises(ConfigurationError, match="only actions of one Box take noise; explore others by epsilon"):
        policy.step(seen(1))


def test_a_greedy_policy_has_all_its_probability_on_the_best_action():
    policy = policy_over(Discrete(3), discrete_actions={"greedy": True, "quantiles": 4})
    observation = np.random.default_rng(1).normal(size=(50, 3)).astype(np.float32)
    acted = policy.step(observation)
    outputs = policy.outputs(torch.from_numpy(observation)).policy.detach().numpy()
    best = outputs.reshape(50, 3, 4).mean(-1).argmax(-1)
    assert (acted.action == best).all() and (acted.extras["log_prob"] == 0).all()
    np.testing.assert_array_equal(policy.probabilities(observation), np.eye(3, dtype=np.float32)[best])


def test_a_gaussian_with_a_deviation_by_state_has_its_density_and_entropy():
    policy = policy_over(Box(-1, 1, (2,), np.float32), box_actions=SAC)
    observation = torch.randn(500, 3, generator=torch.Generator().manual_seed(1))
    output = policy.outputs(observation).policy
    mean, log_std = output.chunk(2, -1)
    drawn = policy.distribution.sample(output, torch.Generator().manual_seed(2))
    normal = torch.distributions.Normal(mean.double(), log_std.double().exp())
    narrowing = torch.log1p(-drawn.double().tanh().square())
    expected = (normal.log_prob(drawn.double()) - narrowing).sum(-1).float()
    log_prob, entropy = policy.distribution.log_prob_entropy(output, drawn)
    torch.testing.assert_close(log_prob, expected, rtol=1e-4, atol=1e-4)
    assert entropy.mean().item() == pytest.approx(-log_prob.mean().item(), abs=0.15)
    assert "log_std" not in dict(policy.distribution.named_parameters())


@pytest.mark.parametrize(
    ("network", "names"),
    [
        ({}, {"policy_trunk"}),
        ({"shared": True}, {"trunks", "policy_head"}),
        ({"core": {"name": "gru", "size": 4}}, {"trunks", "policy_head"}),
    ],
)
def test_a_policy_without_a_value_has_only_acting_weights(network, names):
    policy = policy_over(Discrete(2), value=False, **network)
    assert not policy.has_value and {name.split(".")[1] for name in policy.state_dict()} == names
    acted = policy.step(seen(5))
    assert (acted.extras["value"] == 0).all() and (policy.value(seen(5)) == 0).all()


@pytest.mark.parametrize(
    ("network", "says"),
    [
        ({"box_actions": {"state_std": True}}, "state_std of box_actions is for squashed ones"),
        ({"box_actions": {"squashed": True, "deterministic": True}}, "squashed or deterministic, not both"),
        ({"discrete_actions": {"quantiles": 3}}, "quantiles=3 of discrete_actions must be at least 1, and 1 unless"),
        ({"value": False, "normalize_values": True}, r"network\.value: false leaves no value for"),
        ({"value": "no"}, "setting 'value' of network must be true or false"),
    ],
)
def test_incompatible_network_settings_are_refused(network, says):
    with pytest.raises(ConfigurationError, match=says):
        policy_over(Discrete(2), **network)
