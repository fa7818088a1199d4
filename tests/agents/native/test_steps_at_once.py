"""Steps over Box actions and steps with a memory by one call of the library: equal to torch's within a bound."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

from agents import build_policy
from agents.native import library
from agents.native.perceptron import WIDEST
from agents.policies import Policy
from agents.policies.segment import Segment
from warren.errors import ConfigurationError

BOUND = {"rtol": 4e-6, "atol": 4e-6}
OBSERVATIONS, BOX = Box(-5, 5, (5,), np.float32), Box(-2, 2, (3,), np.float32)
SLOTS = 70  # a block of rows and a part of one
GAUSSIANS: list[dict[str, Any]] = [
    {},
    {"shared": True, "activation": "relu"},
    {"normalize_observations": True, "normalize_values": True},
    {"box_actions": {"initial_std": 0.3}},
    {"box_actions": {"squashed": True}},
    {"box_actions": {"squashed": True, "state_std": True, "initial_std": 0.5}},
    {"box_actions": {"squashed": True, "state_std": True}, "value": False},
]
CELLS: list[dict[str, Any]] = [
    {"core": {"name": name, "size": size}, "shared": shared, **more}
    for name in ("lstm", "gru")
    for size, shared, more in (
        (19, False, {}),
        (19, True, {"activation": "relu"}),
        (64, True, {"normalize_observations": True, "normalize_values": True}),
    )
]


def policy_of(actions: Box | Discrete, network: dict[str, Any]) -> Policy:
    policy = build_policy({"hidden_sizes": [17, 9], "policy_gain": 1.0, **network}, OBSERVATIONS, actions, 3)
    generator = torch.Generator().manual_seed(4)
    for name, parameter in policy.named_parameters():
        if "bias" in name or "log_std" in name:
            torch.nn.init.uniform_(parameter, -0.5, 0.5, generator)
    policy.take_in(3 + 2 * torch.randn(64, 5, generator=generator), torch.randn(64, 1, generator=generator))
    return policy


def observations(steps: int = 1) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(steps, SLOTS, 5)).astype(np.float32)


@pytest.mark.parametrize("mode", ["sample", "greedy"])
@pytest.mark.parametrize("network", GAUSSIANS, ids=str)
def test_steps_of_gaussians_at_once_equal_torchs(network: dict[str, Any], mode: str) -> None:
    policy, (x,) = policy_of(BOX, network), observations()
    assert policy.one_pass(policy.has_value) is not None
    found = policy.step(x, mode=mode, generator=torch.Generator().manual_seed(2), value=policy.has_value)
    library.choose("torch")
    expected = policy.step(x, mode=mode, generator=torch.Generator().manual_seed(2), value=policy.has_value)
    np.testing.assert_allclose(found.action, expected.action, **BOUND)
    assert found.extras.keys() == expected.extras.keys()
    for key, part in expected.extras.items():
        np.testing.assert_allclose(found.extras[key], part, **BOUND)


def test_a_squashed_action_at_its_bound_has_a_finite_log_probability() -> None:
    policy, (x,) = policy_of(BOX, {"box_actions": {"squashed": True}}), observations()
    with torch.no_grad():
        for parameter in policy.network.parameters():
            parameter.mul_(40)
    found = policy.step(x, mode="greedy")
    assert (np.abs(np.tanh(found.action)) == 1).any()
    library.choose("torch")
    np.testing.assert_allclose(found.extras["log_prob"], policy.step(x, mode="greedy").extras["log_prob"], rtol=1e-5)


def test_gaussians_take_neither_a_mask_nor_given_noise() -> None:
    policy, (x,) = policy_of(BOX, {}), observations()
    with pytest.raises(ConfigurationError, match="no action mask"):
        policy.step(x, action_mask=np.ones((SLOTS, 3), bool))
    with pytest.raises(ConfigurationError, match="only Discrete"):
        policy.step(x, noise=np.ones((SLOTS, 3), np.float32))


@pytest.mark.parametrize("actions", [Discrete(4), BOX], ids=str)
@pytest.mark.parametrize("network", CELLS, ids=str)
def test_a_memory_over_many_steps_and_episode_ends_equals_torchs(
    network: dict[str, Any], actions: Box | Discrete
) -> None:
    policy = policy_of(actions, network)
    assert policy.one_pass(True) is not None
    steps = {}
    for choice in ("torch", "native"):
        library.choose(choice)
        chance = np.random.default_rng(5)
        memory, steps[choice] = policy.initial_memory(SLOTS), []
        for x in observations(40):
            acted = policy.step(x, memory, "greedy", value=True)
            steps[choice].append(acted)
            memory = policy.begin(acted.memory, chance.random(SLOTS) < 0.1)
    for expected, found in zip(steps["torch"], steps["native"], strict=True):
        np.testing.assert_allclose(found.action, expected.action, **BOUND)
        for key, part in expected.extras.items():
            np.testing.assert_allclose(found.extras[key], part, **BOUND)
        assert found.memory.keys() == expected.memory.keys()
        for key, remembered in expected.memory.items():
            torch.testing.assert_close(found.memory[key], remembered, **BOUND)


@pytest.mark.parametrize("network", CELLS, ids=str)
def test_the_memory_after_a_step_without_a_value_equals_torchs(network: dict[str, Any]) -> None:
    policy, (x,) = policy_of(Discrete(4), network), observations()
    memory = {
        name: torch.randn(part.shape, generator=torch.Generator().manual_seed(1))
        for name, part in policy.initial_memory(SLOTS).items()
    }
    found = policy.step(x, memory, "greedy", value=False)
    library.choose("torch")
    expected = policy.step(x, memory, "greedy", value=False)
    assert "value" not in found.extras and found.memory.keys() == memory.keys()
    for key, remembered in expected.memory.items():
        torch.testing.assert_close(found.memory[key], remembered, **BOUND)


@pytest.mark.parametrize("actions", [Discrete(4), BOX], ids=str)
@pytest.mark.parametrize("network", [CELLS[0], CELLS[4]], ids=str)
def test_a_segment_with_a_memory_equals_its_policys_steps(network: dict[str, Any], actions: Box | Discrete) -> None:
    policy, x = policy_of(actions, network), observations(6)
    segment, memory = Segment(policy, torch.Generator().manual_seed(2)), policy.initial_memory(SLOTS)
    chosen = []
    for one in x:
        action, memory = segment.act(one, memory)
        chosen.append(action)
    found = segment.extras(x, np.stack(chosen))
    generator, memory = torch.Generator().manual_seed(2), policy.initial_memory(SLOTS)
    for step, one in enumerate(x):
        acted = policy.step(one, memory, generator=generator)
        memory = acted.memory
        np.testing.assert_array_equal(acted.action, chosen[step])
        for key, part in acted.extras.items():
            np.testing.assert_array_equal(found[key][step], part)


@pytest.mark.parametrize("value", [False, True])
@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (lambda whole: {name: part[:3] for name, part in whole.items()}, r"is \[3, 19\], and must be \[70, 19\]"),
        (lambda whole: {name: part[:, :1] for name, part in whole.items()}, r"is \[70, 1\], and must be \[70, 19\]"),
        (lambda whole: {f"my.{name}": part for name, part in whole.items()}, r"the memory has no part 'policy\.h'"),
        (lambda whole: {}, r"the memory has no part 'policy\.h'; begin episodes with policy\.initial_memory"),
    ],
)
def test_a_memory_of_another_form_is_refused(changed: Any, said: str, value: bool) -> None:
    policy, (x,) = policy_of(Discrete(4), CELLS[0]), observations()
    with pytest.raises(ValueError, match=said):
        policy.step(x, changed(policy.initial_memory(SLOTS)), value=value)


@pytest.mark.parametrize("actions", [Discrete(4), BOX], ids=str)
@pytest.mark.parametrize("network", [{}, CELLS[0], CELLS[1]], ids=str)
def test_observations_of_another_length_are_refused(actions: Box | Discrete, network: dict[str, Any]) -> None:
    policy, (x,) = policy_of(actions, network), observations()
    for wrong in (x[:, :2], np.repeat(x, 2, 1)):
        with pytest.raises(ValueError, match=rf"are \[70, {wrong.shape[1]}\] numbers, and the network takes \[70, 5\]"):
            policy.step(wrong)
        for asked in (policy.act, policy.value):
            with pytest.raises((RuntimeError, ValueError), match=r"shapes|takes"):
                asked(wrong)


def test_one_row_of_noise_is_that_of_all_slots() -> None:
    policy, (x,) = policy_of(Discrete(4), {}), observations()
    noise = np.random.default_rng(1).exponential(size=(1, 4)).astype(np.float32)
    found = policy.step(x, noise=noise).action
    np.testing.assert_array_equal(found, policy.step(x, noise=noise.repeat(SLOTS, 0)).action)
    with pytest.raises(RuntimeError, match="expand"):
        policy.step(x, noise=noise.repeat(3, 0))


def test_torch_steps_wide_cells_and_deterministic_or_explored_actions() -> None:
    wide = {"core": {"name": "gru", "size": WIDEST + 1}}
    assert policy_of(Discrete(4), wide).one_pass(True) is None
    assert policy_of(Discrete(4), {"core": {"name": "lstm", "size": WIDEST}}).one_pass(True) is not None
    assert policy_of(BOX, {"box_actions": {"deterministic": True}}).one_pass(True) is None
    policy = policy_of(BOX, {})
    policy.behaviour = {"noise": 0.1}
    assert policy.one_pass(True) is None
