import copy

import gymnasium
import numpy as np
import pytest
import torch

from agents import build_policy
from agents.weight_averages import WeightAverages


@pytest.fixture
def policy():
    spaces = gymnasium.spaces.Box(-1.0, 1.0, (3,)), gymnasium.spaces.Discrete(2)
    return build_policy({"name": "mlp", "hidden_sizes": [4], "normalize_observations": True}, *spaces, 1)


def moved(policy, number):
    """Set every tensor of the policy to `number` and return it."""
    with torch.no_grad():
        for tensor in policy.state_dict().values():
            tensor.fill_(number)
    return policy


def test_an_average_weighs_late_updates_more_before_it_moves_by_its_rate(policy):
    averages, expected, seen = WeightAverages([0.25, 1.0]), 0.0, np.random.default_rng(1).normal(size=20).tolist()
    for number, value in enumerate(seen, 1):
        averages.add(moved(policy, value))
        expected += max(0.25, 5 / (number + 4)) * (value - expected)
        if number <= 16:
            weights = [k * (k + 1) * (k + 2) * (k + 3) for k in range(1, number + 1)]
            assert expected == pytest.approx(np.average(seen[:number], weights=weights))
        found = averages.of(0.25, policy)
        floats = {name: tensor for name, tensor in found.items() if tensor.is_floating_point()}
        assert floats.keys() > dict(policy.named_parameters()).keys(), "the running normalisation is averaged too"
        assert all(torch.allclose(tensor, torch.full_like(tensor, expected), atol=1e-5) for tensor in floats.values())
        assert all(torch.equal(tensor, policy.state_dict()[name]) for name, tensor in averages.of(1.0, policy).items())


def test_averages_resume_exactly_from_their_state_or_restart_for_other_rates(policy):
    straight = WeightAverages([0.1])
    for value in (1.0, 0.3, -2.7):
        straight.add(moved(policy, value))
    state = copy.deepcopy(straight.state())
    resumed, other = WeightAverages([0.1]), WeightAverages([0.1, 0.5])
    resumed.load_state(state, 3, policy)
    other.load_state(state, 3, policy)
    assert (resumed.updates, other.updates) == (3, 0)
    for one in (straight, resumed):
        one.add(moved(policy, 0.9))
    assert all(torch.equal(tensor, resumed.of(0.1, policy)[name]) for name, tensor in straight.of(0.1, policy).items())
    assert other.of(0.5, policy).keys() == policy.state_dict().keys(), "before the first update, the policy's weights"
