"""Perceptrons by the compiled library: outputs, derivatives and draws equal torch's; torch is the fallback."""

from __future__ import annotations

import copy
import pickle
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete
from torch import Tensor
from torch.nn import functional

from agents import build_policy, computing
from agents.native import library
from agents.native.acting import EXPONENTIAL, LIKELIEST, UNIFORM, Acting, Parts
from agents.native.perceptron import A_THREAD, WIDEST, Perceptron
from agents.operators.blocks import HIDDEN_LAYERS, MLP
from agents.policies import Policy
from agents.policies.segment import Segment
from warren import compiled

LARGEST_ERROR = 1e-6  # relative to the largest number of the tensor
OBSERVATIONS = Box(-5, 5, (5,), np.float32)


def error(found: Tensor, expected: Tensor) -> float:
    return float((found.double() - expected).abs().max() / expected.abs().max().clamp(min=1e-3))


def exact(module: MLP, x: Tensor, features: bool = False) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Return (outputs, inputs, parameters), computed by torch in float64."""
    activations = {
        "tanh": torch.tanh, "relu": torch.relu, "elu": functional.elu, "silu": functional.silu
    }  # fmt: skip
    inputs = x.double().requires_grad_()
    weights = [tuple(part.detach().double().requires_grad_() for part in pair) for pair in module.weights()]
    y = inputs
    for place, pair in enumerate(weights):
        y = functional.linear(y, *pair)
        if features or place < len(weights) - 1:
            y = activations[module.activation](y)
    return y, inputs, [part for pair in weights for part in pair]


def random_module(seed: int) -> tuple[MLP, Tensor]:
    chance = np.random.default_rng(seed)
    sizes = [int(size) for size in chance.integers(1, 70, chance.integers(2, 6))]
    generator = torch.Generator().manual_seed(seed)
    module = MLP(sizes, sorted(HIDDEN_LAYERS)[seed % 4], 1.0, generator)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, 0, parameter.shape[-1] ** -0.5, generator)
    return module, torch.randn(int(chance.integers(1, 200)), sizes[0], generator=generator)


@pytest.mark.parametrize("features", [False, True])
@pytest.mark.parametrize("seed", range(24))
def test_random_networks_and_their_derivatives_equal_those_in_float64(seed: int, features: bool) -> None:
    module, x = random_module(seed)
    x.requires_grad_()
    y = module.features(x) if features else module(x)
    if module.activation != "silu":
        assert "Differentiated" in type(y.grad_fn).__name__, "torch computed it, not the library"
    expected, inputs, parameters = exact(module, x.detach(), features)
    assert error(y.detach(), expected.detach()) < LARGEST_ERROR
    with torch.inference_mode():
        assert error(module.features(x) if features else module(x), expected.detach()) < LARGEST_ERROR
    toward = torch.rand(y.shape, generator=torch.Generator().manual_seed(seed))  # one sign: the sums do not cancel out
    (y * toward).sum().backward()
    (expected * toward).sum().backward()
    assert x.grad is not None and inputs.grad is not None
    assert error(x.grad, inputs.grad) < 4 * LARGEST_ERROR
    for found, wanted in zip(module.parameters(), parameters, strict=True):
        assert found.grad is not None and wanted.grad is not None
        assert error(found.grad, wanted.grad) < 4 * LARGEST_ERROR


def test_threads_share_the_rows_and_add_up_one_gradient() -> None:
    module, _ = random_module(4)
    x = torch.randn(3 * A_THREAD + 17, module.weights()[0][0].shape[1], generator=torch.Generator().manual_seed(4))
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        y = module(x)
        y.square().mean().backward()
    finally:
        torch.set_num_threads(before)
    expected, _, parameters = exact(module, x)
    expected.square().mean().backward()
    assert error(y.detach(), expected.detach()) < LARGEST_ERROR
    for found, wanted in zip(module.parameters(), parameters, strict=True):
        assert found.grad is not None and wanted.grad is not None
        assert error(found.grad, wanted.grad) < 4 * LARGEST_ERROR


def test_two_derivatives_of_one_network_do_not_write_over_each_other() -> None:
    module, x = random_module(1)
    first, second = module(x), module(2 * x)
    (first.sum() + second.sum()).backward()
    expected = exact(module, x)
    doubled = exact(module, 2 * x)
    (expected[0].sum()).backward()
    doubled[0].sum().backward()
    for found, one, other in zip(module.parameters(), expected[2], doubled[2], strict=True):
        assert found.grad is not None and one.grad is not None and other.grad is not None
        assert error(found.grad, one.grad + other.grad) < LARGEST_ERROR


def test_a_retained_graph_gives_its_derivatives_again() -> None:
    module, x = random_module(1)
    parameters = list(module.parameters())
    loss = module(x).square().sum()
    first = torch.autograd.grad(loss, parameters, retain_graph=True)
    others = module(2 * x), module(3 * x)  # these write into spare memory
    for found, wanted in zip(torch.autograd.grad(loss, parameters), first, strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=0)
    expected = exact(module, 2 * x)
    expected[0].sum().backward()
    for found, one in zip(torch.autograd.grad(others[0].sum(), parameters), expected[2], strict=True):
        assert one.grad is not None and error(found, one.grad) < LARGEST_ERROR


def test_memory_of_a_freed_graph_is_reused() -> None:
    module, x = random_module(1)
    for _ in range(3):
        module(x).sum().backward()
    assert len(module.native._spare) == 1


def test_nan_in_an_observation_or_a_weight_stays_nan() -> None:
    for activation in HIDDEN_LAYERS:
        module = MLP([3, 8, 2], activation, 1.0, torch.Generator().manual_seed(1))
        x = torch.randn(5, 3)
        x[2, 1] = torch.nan
        with torch.inference_mode():
            assert module(x).isnan().any(1).tolist() == [False, False, True, False, False]
            next(module.parameters())[0, 0] = torch.nan
            assert module(x).isnan().any(1).all()


def test_torch_computes_wide_double_and_autocast_networks_or_if_chosen() -> None:
    def by_library(module: MLP, x: Tensor) -> bool:
        return "Differentiated" in type(module(x).grad_fn).__name__

    generator = torch.Generator().manual_seed(1)
    module, x = MLP([3, 8, 2], "tanh", 1.0, generator), torch.randn(4, 3)
    assert by_library(module, x)
    assert not by_library(MLP([3, WIDEST + 1, 2], "tanh", 1.0, generator), x)
    assert not by_library(copy.deepcopy(module).double(), x.double())
    with torch.autocast("cpu", torch.bfloat16):
        assert not by_library(module, x)
    library.choose("torch")
    assert not by_library(module, x)


def test_a_perceptron_is_copied_and_pickled_without_its_pointers() -> None:
    perceptron = Perceptron("relu", 2)
    for other in (copy.deepcopy(perceptron), pickle.loads(pickle.dumps(perceptron))):
        assert (other.activation, other.heads) == ("relu", 2)


def test_code_for_any_processor_computes_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module, x = random_module(2)
    fast = module(x)
    monkeypatch.setenv("WARREN_CACHE", str(tmp_path))
    monkeypatch.setattr(compiled, "MACHINE", ((),))
    library.COMPILED.forget()
    try:
        slow = module(x)
        assert len(list(tmp_path.glob("native/*.so"))) == 1
    finally:
        library.COMPILED.forget()
    assert error(slow.detach(), fast.detach().double()) < LARGEST_ERROR


@pytest.mark.parametrize("compiler", ["", "false"])
def test_without_a_compiler_torch_computes_and_the_reason_is_reported(
    compiler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, x = random_module(2)
    fast = module(x)
    monkeypatch.setenv("WARREN_CACHE", str(tmp_path))
    if compiler:
        monkeypatch.setenv("CC", compiler)  # it exists and fails
    else:
        monkeypatch.delenv("CC", raising=False)
        monkeypatch.setattr(compiled, "COMPILERS", ())
    library.COMPILED.forget()
    try:
        assert error(module(x).detach(), fast.detach().double()) < LARGEST_ERROR
        line = computing.slower("auto")
        assert line is not None and "torch computes" in line
        assert [*computing.problems_of_perceptrons("native", here=True)]
        assert not [*computing.problems_of_perceptrons("native", here=False)]
    finally:
        library.COMPILED.forget()


# Steps: logits, draw, log-probability and value at once.


def policy_of(actions: int = 4, **network: object) -> Policy:
    policy = build_policy({"hidden_sizes": [17, 9], "policy_gain": 1.0, **network}, OBSERVATIONS, Discrete(actions), 3)
    policy.take_in(3 + 2 * torch.randn(64, 5, generator=torch.Generator().manual_seed(1)), torch.randn(64, 1))
    return policy


NETWORKS = [
    {},
    {"shared": True, "activation": "relu"},
    {"value": False},
    {"hidden_sizes": []},
    {"normalize_observations": True, "normalize_values": True},
    {"activation": "silu"},
    {"shared": True, "value": False},
]


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("network", NETWORKS, ids=str)
def test_steps_at_once_equal_torchs(network: dict[str, object], masked: bool) -> None:
    policy = policy_of(**network)
    x = np.random.default_rng(1).normal(size=(70, 5)).astype(np.float32)
    mask = np.random.default_rng(2).random((70, 4)) < 0.5 if masked else None
    if mask is not None:
        mask[:, 1] |= ~mask.any(1)
    noise = torch.empty(70, 4).exponential_(generator=torch.Generator().manual_seed(1)).numpy()
    value = policy.has_value
    assert policy.one_pass(value) is not None
    by_mode = {"greedy": {"mode": "greedy"}, "noise": {"noise": noise}}
    found = {name: policy.step(x, action_mask=mask, value=value, **given) for name, given in by_mode.items()}
    drawn = policy.step(x, action_mask=mask, value=value)
    library.choose("torch")
    assert policy.one_pass(value) is None
    for name, given in by_mode.items():
        expected = policy.step(x, action_mask=mask, value=value, **given)
        np.testing.assert_array_equal(found[name].action, expected.action)
        for key, part in expected.extras.items():
            np.testing.assert_allclose(found[name].extras[key], part, rtol=2e-6, atol=2e-6)
    if mask is not None:
        assert mask[np.arange(70), drawn.action].all()
    p = policy.probabilities(x, mask)[np.arange(70), drawn.action]
    np.testing.assert_allclose(drawn.extras["log_prob"], np.log(p), rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("nan", [(0,), (3,), (1, 2), (0, 1, 2, 3, 4)], ids=str)
def test_actions_are_legal_whatever_the_logits_and_the_chance(nan: tuple[int, ...]) -> None:
    rows = 40
    x, legal = torch.zeros(rows, 1), torch.rand(rows, 5, generator=torch.Generator().manual_seed(1)) < 0.3
    legal[torch.arange(rows), torch.arange(rows) % 5] = True
    bias = torch.tensor([0.0, 900.0, -900.0, 1.0, 2.0])
    chances = [torch.zeros(rows), torch.full((rows,), 1 - 2**-24), torch.full((rows,), 0.5)]
    noises = [torch.zeros(rows, 5), torch.full((rows, 5), 100.0), torch.ones(rows, 5)]
    for broken in ((), nan):
        logits = bias.index_fill(0, torch.tensor(broken, dtype=torch.int64), torch.nan)
        layers = [(torch.zeros(5, 1), logits)]
        draws = [(LIKELIEST, None), *((UNIFORM, one) for one in chances), *((EXPONENTIAL, one) for one in noises)]
        for by, chance in draws:
            action, log_prob, _, _ = Acting(Parts(Perceptron("tanh"), layers), None).discrete(x, legal, by, chance, {})
            assert legal[torch.arange(rows), action].all(), (broken, by, chance)
            of_nan = (legal & logits.isnan()).any(1)
            assert torch.equal(log_prob.isnan(), of_nan)


def test_actions_follow_their_probabilities_and_the_seed() -> None:
    policy = policy_of(3)
    x = np.tile(np.random.default_rng(5).normal(size=(1, 5)).astype(np.float32), (20_000, 1))
    mask = np.ones((20_000, 3), bool)
    mask[::2, 0] = False
    actions = policy.step(x, action_mask=mask, generator=torch.Generator().manual_seed(1)).action
    for half in (0, 1):
        share = np.bincount(actions[half::2], minlength=3) / 10_000
        np.testing.assert_allclose(share, policy.probabilities(x[:1], mask[half : half + 1])[0], atol=0.02)
    again = policy.step(x, action_mask=mask, generator=torch.Generator().manual_seed(1)).action
    np.testing.assert_array_equal(actions, again)
    assert (policy.step(x, action_mask=mask).action != actions).any()


@pytest.mark.parametrize("network", [{}, {"shared": True}], ids=str)
def test_a_segment_equals_its_single_steps_and_torchs_extras(network: dict[str, object]) -> None:
    policy = policy_of(**network)
    x = np.random.default_rng(1).normal(size=(6, 10, 5)).astype(np.float32)
    segment = Segment(policy, torch.Generator().manual_seed(2))
    actions = np.stack([segment.act(one, {})[0] for one in x])
    found = segment.extras(x, actions)
    generator = torch.Generator().manual_seed(2)
    for one, action in zip(x, actions, strict=True):
        np.testing.assert_array_equal(policy.step(one, generator=generator).action, action)
    library.choose("torch")
    said = policy.evaluate(torch.from_numpy(x).flatten(0, 1), torch.from_numpy(actions).flatten())
    np.testing.assert_allclose(found["log_prob"].ravel(), said.log_prob.detach(), rtol=2e-6, atol=2e-6)
    np.testing.assert_allclose(found["value"].ravel(), said.value.detach(), rtol=2e-6, atol=2e-6)


def test_torch_acts_for_actions_of_several_parts_and_for_explorers() -> None:
    policy = policy_of()
    policy.behaviour = {"epsilon": 0.5}
    assert policy.one_pass(True) is None
    for actions in (MultiDiscrete([2, 3]), Dict(a=Discrete(2), b=Discrete(3))):
        other = build_policy({}, OBSERVATIONS, actions, 1)
        assert other.one_pass(True) is None
        assert other.step(np.zeros((3, 5), np.float32)).extras["value"].shape == (3,)


def test_new_weights_apply_at_once() -> None:
    policy, other = policy_of(), policy_of(activation="tanh")
    x = np.random.default_rng(1).normal(size=(8, 5)).astype(np.float32)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(-2)
    policy.step(x)
    policy.load_state_dict(other.state_dict())
    found, expected = policy.step(x, mode="greedy"), other.step(x, mode="greedy")
    np.testing.assert_array_equal(found.action, expected.action)
    np.testing.assert_array_equal(found.extras["value"], expected.extras["value"])


def test_the_library_takes_layers_up_to_the_widest() -> None:
    for sizes in pairwise([1, 5, 40, WIDEST]):
        module = MLP(list(sizes), "relu", 1.0, torch.Generator().manual_seed(1))
        assert module.native.takes(module.weights())
