"""Optimizers by name: steps equal to torch's, rates by group, resuming from a state."""

import pytest
import torch
from gymnasium.spaces import Box, Discrete
from support.experience import random_trajectory

from agents import build_algorithm, build_policy
from agents.algorithms.optimizers import OptimizerConfig, optimizer_of
from warren.errors import ConfigurationError

TORCHS = {
    "adam": lambda values: torch.optim.Adam([values], 0.1, (0.8, 0.9), eps=0.01, weight_decay=0.2),
    "adamw": lambda values: torch.optim.AdamW([values], 0.1, (0.8, 0.9), eps=0.01, weight_decay=0.2),
    "rmsprop": lambda values: torch.optim.RMSprop([values], 0.1, 0.7, eps=0.02, weight_decay=0.2),
}
SETTINGS = {
    "learning_rate": 0.1, "adam_beta1": 0.8, "adam_beta2": 0.9, "adam_epsilon": 0.01, "rmsprop_decay": 0.7,
    "rmsprop_epsilon": 0.02, "weight_decay": 0.2,
}  # fmt: skip


def made(seed=1, **settings):
    policy = build_policy({"hidden_sizes": [8]}, Box(-1, 1, (4,)), Discrete(2), seed)
    return build_algorithm("a2c", {"learning_rate": 0.01, **settings}, policy, seed)


def weights(algorithm):
    return {name: tensor.clone() for name, tensor in algorithm.policy.named_parameters()}


@pytest.mark.parametrize("name", TORCHS)
def test_steps_equal_torchs(name):
    start = torch.randn(100, generator=torch.Generator().manual_seed(1))
    ours, theirs = start.clone().requires_grad_(), start.clone().requires_grad_()
    optimizer, reference = optimizer_of(OptimizerConfig(optimizer=name, **SETTINGS), ours), TORCHS[name](theirs)
    for step in range(1, 6):
        for values in (ours, theirs):
            values.grad = values.detach().sin() * step
        optimizer.step()
        reference.step()
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", TORCHS)
def test_a_step_that_is_skipped_changes_nothing(name):
    values = torch.ones(5, requires_grad=True)
    optimizer = optimizer_of(OptimizerConfig(optimizer=name, **SETTINGS), values)
    values.grad = torch.ones(5)
    optimizer.step(torch.tensor(0.0))
    before, state = values.clone(), {key: part.clone() for key, part in optimizer.state.items()}
    values.grad = torch.full((5,), torch.nan)
    optimizer.step(torch.tensor(1.0))
    assert torch.equal(values, before)
    assert all(torch.equal(part, state[key]) for key, part in optimizer.state.items())


@pytest.mark.parametrize("name", TORCHS)
def test_training_resumes_exactly_from_the_state_of_any_optimizer(name):
    one, other = made(1, optimizer=name, weight_decay=0.01), made(2, optimizer=name, weight_decay=0.01)
    one.update([random_trajectory(one.policy, seed=1)])
    other.policy.load_state_dict(one.policy.state_dict())
    other.load_state(*one.state())
    trajectory = random_trajectory(one.policy, seed=2)
    assert one.update([trajectory]) == other.update([trajectory])
    assert all(torch.equal(tensor, weights(other)[key]) for key, tensor in weights(one).items())


@pytest.mark.parametrize("name", TORCHS)
def test_a_group_of_parameters_has_its_own_rate(name):
    alike, apart = (
        made(optimizer=name),
        made(optimizer=name, learning_rates={"network.value": 3.0, "network.policy": 0}),
    )
    before = weights(alike)
    for algorithm in (alike, apart):
        algorithm.update([random_trajectory(algorithm.policy)])
    steps, others = ({key: now - before[key] for key, now in weights(one).items()} for one in (alike, apart))
    for key, step in steps.items():
        factor = 3.0 if key.startswith("network.value") else 0.0
        torch.testing.assert_close(others[key], factor * step, rtol=1e-3, atol=1e-7)
    apart.adjust({"learning_rates": {}})
    apart.update([random_trajectory(apart.policy)])
    assert any(not torch.equal(now, before[key]) for key, now in weights(apart).items() if "network.policy" in key)


def test_wrong_settings_of_an_optimizer_are_all_named():
    with pytest.raises(ConfigurationError) as error:
        made(optimizer="sgd", rmsprop_decay=1.0, weight_decay=-1.0, learning_rates={"network": "fast"})
    assert error.value.problems == [
        "optimizer=sgd of a2c must be one of adam, adamw, rmsprop",
        "rmsprop_decay=1.0 of a2c must be at least 0 and below 1",
        "weight_decay=-1.0 of a2c must be at least 0",
        "learning_rates={'network': 'fast'} of a2c must be a table of factors that are at least 0",
    ]
    with pytest.raises(
        ConfigurationError, match=r"no parameter's name begins with 'netwrok'; there are network\.policy_"
    ):
        made(learning_rates={"netwrok": 2.0})
    with pytest.raises(ConfigurationError, match="optimizer=rmsprop of a2c must stay adam for the whole run"):
        made().adjust({"optimizer": "rmsprop"})
