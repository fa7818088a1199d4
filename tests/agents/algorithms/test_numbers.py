"""A loss or a gradient that is not a number changes nothing, and says where it comes from."""

import numpy as np
import pytest
import torch
from experience import random_trajectory
from gymnasium.spaces import Box, Discrete

from agents import build_algorithm, build_policy
from agents.algorithms import ALGORITHMS
from warren.errors import NotFinite

SMALL = {"ppo": {"minibatch_size": 16}, "appo": {"minibatch_size": 16}}


def make(name, **settings):
    policy = build_policy({"hidden_sizes": [8]}, Box(-1, 1, (4,), np.float32), Discrete(3), 1)
    return build_algorithm(name, {**SMALL.get(name, {}), **settings}, policy, 1)


def everything(algorithm):
    tensors, _ = algorithm.state()
    found = {**algorithm.policy.state_dict(), **{key: tensor for key, tensor in tensors.items() if key != "generator"}}
    return {key: tensor.clone() for key, tensor in found.items()}


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(tensor, other[key]) for key, tensor in one.items())


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
@pytest.mark.parametrize("bad", [np.nan, 1e30])  # the square of the one that is a number is none
def test_weights_and_optimizer_stay_and_the_term_and_its_inputs_are_named(name, bad):
    algorithm = make(name)
    algorithm.update([random_trajectory(algorithm.policy, seed=1)])
    before = everything(algorithm)
    trajectory = random_trajectory(algorithm.policy, seed=2)
    trajectory.reward[-1] = bad  # with returns over the whole unroll that is all of it: the first minibatch has it
    with pytest.raises(NotFinite) as error:
        algorithm.update([trajectory])
    assert same(before, everything(algorithm))
    said = str(error.value)
    assert said.startswith(f"{name}, minibatch 1 of the update after 64 environment steps: ")
    assert "value_loss" in said and ("nan" in said or "inf" in said)
    assert ("reward" if name in ("a2c", "impala") else "target" if np.isnan(bad) else "") in said
    assert "env.reward_scale" in said


def test_a_later_minibatch_leaves_what_those_before_it_made(monkeypatch):
    algorithm, steps = make("ppo"), []
    step = algorithm.optimizer.step

    def counted():
        step()
        steps.append(everything(algorithm))

    algorithm.optimizer.step = counted
    trajectory = random_trajectory(algorithm.policy, seed=2)
    trajectory.extras["log_prob"][3, 1] = -1e4  # a ratio of infinity, and a gradient where its advantage is negative
    trajectory.reward[3, 1] = -50.0
    with pytest.raises(
        NotFinite, match=r"minibatch \d of the update after 0 environment steps: policy_loss .*ratio is inf"
    ):
        algorithm.update([trajectory])
    assert all(torch.isfinite(tensor).all() for tensor in everything(algorithm).values())
    assert same(everything(algorithm), steps[-1]) if steps else algorithm.optimizer.state == {}


def test_weights_that_are_no_numbers_are_named():
    algorithm = make("ppo")
    trajectory = random_trajectory(algorithm.policy, seed=2)
    name, weight = next(iter(algorithm.policy.network.named_parameters()))
    with torch.no_grad():
        weight[0] = torch.nan
    with pytest.raises(NotFinite, match=f"parameter {name} is nan at {weight[0].numel()} of {weight.numel()}"):
        algorithm.update([trajectory])


def test_a_gradient_that_is_none_though_the_loss_is_a_number_is_named():
    algorithm = make("ppo")
    weight = next(iter(algorithm.policy.network.parameters()))
    with pytest.raises(
        NotFinite, match=r"the gradient's norm is not finite, though the loss is; .*gradient of .* is nan"
    ):
        algorithm.descend(torch.sqrt((weight * 0).sum()) * 0)
