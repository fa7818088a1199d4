import copy

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, Text
from torch.distributions import Categorical, Independent, Normal

from agents import build_policy
from agents.policies.segment import values
from warren.errors import ConfigurationError, UnknownName
from warren.trees import take

OBSERVATIONS = Box(-1, 1, (4,), np.float32)
ACTIONS = {
    "discrete": Discrete(3),
    "box": Box(np.array([-1, -2], np.float32), np.array([1, 2], np.float32)),
}


@pytest.fixture(params=ACTIONS)
def policy(request):
    policy = build_policy({"name": "mlp"}, OBSERVATIONS, ACTIONS[request.param], seed=3)
    generator = torch.Generator().manual_seed(9)
    for parameter in policy.parameters():  # away from the near-uniform start
        parameter.data.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return policy


def observations(n, seed=0):
    return np.random.default_rng(seed).normal(size=(n, 4)).astype(np.float32)


def torch_distribution(policy, observation):
    output, _ = policy.network.act(torch.from_numpy(observation), {})
    if isinstance(policy.action_space, Discrete):
        return Categorical(logits=output)
    return Independent(Normal(output, policy.distribution.log_std.exp()), 1)


def test_a_step_returns_arrays_of_the_stated_types(policy):
    action, extras, memory = policy.step(observations(5))
    assert memory == {} and set(extras) == {"log_prob", "value"}
    if isinstance(policy.action_space, Discrete):
        assert (action.dtype, action.shape) == (np.int64, (5,))
    else:
        assert (action.dtype, action.shape) == (np.float32, (5, 2))
    for array in extras.values():
        assert (array.dtype, array.shape) == (np.float32, (5,))


def test_a_step_without_values_takes_the_same_actions_from_the_same_draws(policy):
    x = observations(50)
    one, other = (torch.Generator().manual_seed(4) for _ in range(2))
    alone, whole = policy.step(x, generator=one, value=False), policy.step(x, generator=other)
    np.testing.assert_array_equal(alone.action, whole.action)
    np.testing.assert_array_equal(alone.extras["log_prob"], whole.extras["log_prob"])
    assert "value" not in alone.extras
    assert torch.equal(one.get_state(), other.get_state())


@pytest.mark.parametrize("config", [{}, {"shared": True}, {"normalize_values": True}])
def test_values_of_a_segment_equal_those_of_its_steps_for_any_chunk_size(config, monkeypatch):
    space = Dict({"speed": OBSERVATIONS, "gear": Discrete(3)})
    policy = build_policy(
        {"name": "mlp", **config}, space, Discrete(3), seed=3, reward_channels={"win": 1.0, "style": 0.1}
    )
    segment = {"speed": observations(35).reshape(7, 5, 4), "gear": np.arange(35).reshape(7, 5) % 3}
    one_by_one = np.stack([policy.value(take(segment, step)) for step in range(7)])
    for at_once in (1, 10, 14, 1000):
        monkeypatch.setattr("agents.policies.segment.AT_ONCE", at_once)
        found = values(policy, segment)
        assert (found.shape, found.dtype) == ((7, 5, 2), np.float32)
        np.testing.assert_allclose(found, one_by_one, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", ["sample", "greedy"])
def test_evaluate_reproduces_the_outputs_of_a_step(policy, mode):
    x = observations(50)
    action, extras, _ = policy.step(x, mode=mode)
    value = extras["value"]
    again, _, value_again, _ = policy.evaluate(torch.from_numpy(x), torch.from_numpy(action))
    np.testing.assert_allclose(extras["log_prob"], again.detach().numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(value, value_again.detach().numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(value, policy.value(x), rtol=1e-6, atol=1e-6)


def test_log_probabilities_and_entropies_equal_those_of_torch_distributions(policy):
    x = observations(50)
    action = torch.from_numpy(policy.step(x).action)
    log_prob, entropy, _, _ = policy.evaluate(torch.from_numpy(x), action)
    distribution = torch_distribution(policy, x)
    torch.testing.assert_close(log_prob, distribution.log_prob(action))
    torch.testing.assert_close(entropy, distribution.entropy())


def test_actions_are_drawn_from_the_distribution(policy):
    n = 40_000
    x = observations(1)
    action = policy.step(np.repeat(x, n, axis=0), generator=torch.Generator().manual_seed(1)).action
    distribution = torch_distribution(policy, x)
    if isinstance(policy.action_space, Discrete):
        frequency = np.bincount(action, minlength=3) / n
        np.testing.assert_allclose(frequency, distribution.probs[0].detach().numpy(), atol=0.01)
    else:
        np.testing.assert_allclose(action.mean(0), distribution.mean[0].detach().numpy(), atol=0.02)
        np.testing.assert_allclose(action.std(0), policy.distribution.log_std.exp().detach().numpy(), rtol=0.02)


def test_greedy_takes_the_likeliest_action(policy):
    x = observations(20)
    action, extras, _ = policy.step(x, mode="greedy")
    mode = torch_distribution(policy, x).mode.detach().numpy()
    np.testing.assert_allclose(action, mode, rtol=1e-6)
    drawn = [policy.step(x).extras["log_prob"] for _ in range(20)]
    assert (extras["log_prob"] >= np.max(drawn, axis=0) - 1e-6).all()


def test_a_generator_repeats_its_actions(policy):
    x = observations(30)
    first, again, other = (policy.step(x, generator=torch.Generator().manual_seed(s)).action for s in (4, 4, 5))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_a_seed_repeats_weights_and_actions_whatever_torchs_global_generator_did():
    def make(seed):
        torch.rand(seed + 1)
        before = torch.get_rng_state()
        policy = build_policy({}, OBSERVATIONS, ACTIONS["discrete"], seed)
        torch.testing.assert_close(torch.get_rng_state(), before)
        return policy, policy.step(observations(30)).action

    (first, acted), (again, acted_again), (other, _) = make(1), make(1), make(2)
    for name, tensor in first.state_dict().items():
        torch.testing.assert_close(tensor, again.state_dict()[name], rtol=0, atol=0)
    np.testing.assert_array_equal(acted, acted_again)
    weight = "network.policy_trunk.layers.0.weight"
    assert not torch.equal(first.state_dict()[weight], other.state_dict()[weight])


def test_weights_start_orthogonal_and_the_first_policy_near_uniform():
    policy = build_policy({}, OBSERVATIONS, ACTIONS["discrete"], seed=1)
    state = policy.state_dict()
    for trunk, gain in (("policy_trunk", 0.01), ("value_trunk", 1.0)):
        hidden, last = state[f"network.{trunk}.layers.1.weight"], state[f"network.{trunk}.layers.2.weight"]
        torch.testing.assert_close(hidden @ hidden.T, 2 * torch.eye(64), rtol=0, atol=1e-4)
        torch.testing.assert_close(last @ last.T, gain**2 * torch.eye(len(last)), rtol=0, atol=1e-4)
        assert not state[f"network.{trunk}.layers.0.bias"].any()
    np.testing.assert_allclose(policy.step(observations(20)).extras["log_prob"], -np.log(3), atol=0.05)


def test_the_policys_and_the_values_trunk_share_nothing(policy):
    x = observations(3)
    evaluated = policy.evaluate(torch.from_numpy(x), torch.from_numpy(policy.step(x).action))
    evaluated.value.sum().backward()
    assert all(p.grad is None for p in policy.network.policy_trunk.parameters())
    assert all(p.grad is not None for p in policy.network.value_trunk.parameters())


def test_a_copy_of_a_policy_acts_by_its_own_weights(policy):
    twin = copy.deepcopy(policy)
    for parameter in twin.parameters():
        parameter.data.zero_()
    assert policy.value(observations(2)).any()
    assert not twin.value(observations(2)).any()


def test_discrete_actions_may_start_anywhere():
    policy = build_policy({}, OBSERVATIONS, Discrete(2, start=-1), seed=1)
    assert set(policy.env_action(policy.step(observations(50)).action)) == {-1, 0}


def test_box_actions_are_clipped_for_the_environment_only():
    space = Box(-0.1, 0.1, (2, 2), np.float32)
    policy = build_policy({}, OBSERVATIONS, space, seed=1)
    action = policy.step(observations(50)).action
    assert action.shape == (50, 4)
    assert np.abs(action).max() > 1
    for_env = policy.env_action(action)
    assert for_env.shape == (50, 2, 2)
    assert all(space.contains(a) for a in for_env)


def test_observations_of_other_shapes_and_dtypes_are_flattened():
    policy = build_policy({"hidden_sizes": [8]}, Box(0, 255, (2, 3), np.uint8), Discrete(2), seed=1)
    x = np.arange(24, dtype=np.uint8).reshape(4, 2, 3)
    assert policy.step(x).action.shape == (4,)
    assert policy.value(x.astype(np.float64)) == pytest.approx(policy.value(x))


def test_network_settings_are_applied():
    policy = build_policy(
        {"name": "mlp", "hidden_sizes": [16], "activation": "relu"}, OBSERVATIONS, Discrete(2), seed=1
    )
    assert [tuple(p.shape) for p in policy.network.policy_trunk.parameters()] == [(16, 4), (16,), (2, 16), (2,)]
    assert policy.network.policy_trunk.features(torch.randn(8, 4)).min() == 0, "relu was not applied"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"name": "mpl"}, r"network 'mpl' does not exist; did you mean mlp\?"),
        ({"hidden_size": [64]}, r"'hidden_size' does not exist; did you mean hidden_sizes\?"),
        ({"hidden_sizes": "64"}, r"'hidden_sizes' of network 'mlp' must be a list of int, is '64'"),
        ({"hidden_sizes": [0]}, r"hidden_sizes=\[0\] of network 'mlp' must all be at least 1"),
        ({"activation": "tan"}, r"activation 'tan' does not exist; did you mean tanh\?"),
    ],
)
def test_an_invalid_network_is_refused_with_the_reason(config, message):
    with pytest.raises(ConfigurationError, match=message):
        build_policy(config, OBSERVATIONS, Discrete(2), seed=1)


def test_an_unknown_network_is_an_unknown_name():
    with pytest.raises(UnknownName):
        build_policy({"name": "nonesuch"}, OBSERVATIONS, Discrete(2), seed=1)


def test_an_unsupported_action_space_is_refused():
    with pytest.raises(ConfigurationError, match="is a Box of whole numbers, which no policy draws"):
        build_policy({}, OBSERVATIONS, Box(0, 5, (2,), np.int64), seed=1)


def test_an_unsupported_observation_space_is_refused():
    space = Dict({"view": OBSERVATIONS, "words": Text(5)})
    with pytest.raises(ConfigurationError, match=r"observation space Text.* at 'words' is not one that networks take"):
        build_policy({}, space, Discrete(2), seed=1)
