"""Blocks of networks, compared with torch's."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch.nn import functional

from agents.operators.blocks import tanh_layer, uniform, unset

NETWORKS = """
import sys
import numpy, torch
from gymnasium.spaces import Box, Discrete
from agents import build_policy
before = torch.get_rng_state()
board = Box(0, 255, (12, 12, 3), numpy.uint8)
build_policy({}, Box(-1, 1, (4,)), Discrete(2), 1)
build_policy({"core": {"name": "lstm", "size": 8}}, Box(-1, 1, (4,)), Discrete(2), 1)
build_policy({"name": "board_resnet", "channels": 4}, board, Discrete(2), 1)
print("sympy" in sys.modules, torch.equal(before, torch.get_rng_state()))
"""


def test_networks_are_built_without_sympy_and_torchs_global_generator() -> None:
    done = subprocess.run([sys.executable, "-c", NETWORKS], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["False", "True"], done.stderr  # sympy takes 1.6 s of each process's start


def test_an_unset_layer_equals_torchs_once_its_weights_are_loaded() -> None:
    for kind, sizes in ((torch.nn.Linear, (3, 5)), (torch.nn.Conv2d, (2, 4, 3)), (torch.nn.LSTM, (3, 6))):
        ours, theirs = unset(kind, *sizes), kind(*sizes)
        ours.load_state_dict(theirs.state_dict())
        x = torch.randn({torch.nn.Conv2d: (1, 2, 5, 5)}.get(kind, (7, 3)))
        found, expected = ours(x), theirs(x)
        found, expected = (one[0] if isinstance(one, tuple) else one for one in (found, expected))
        torch.testing.assert_close(found, expected)
        assert [name for name, _ in ours.named_parameters()] == [name for name, _ in theirs.named_parameters()]


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_a_layer_without_inputs_starts_with_a_zero_bias_like_torchs() -> None:
    layer = uniform(torch.nn.Linear(0, 3), torch.Generator())
    assert layer.bias.tolist() == torch.nn.Linear(0, 3).bias.tolist() == [0, 0, 0]


def reference(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.tanh(functional.linear(x, weight, bias))


@pytest.mark.parametrize(("inputs", "outputs"), [(1, 1), (4, 64), (64, 4), (64, 64)])
@pytest.mark.parametrize("of_x", [True, False], ids=["with a gradient of x", "without"])
def test_a_tanh_layer_and_its_gradients_equal_torchs_to_within_rounding(inputs: int, outputs: int, of_x: bool) -> None:
    chance = torch.Generator().manual_seed(1)
    given = [torch.randn(shape, generator=chance) for shape in ((100, inputs), (outputs, inputs), (outputs,))]
    ours, theirs = ([part.clone().requires_grad_() for part in given] for _ in range(2))
    ours[0].requires_grad_(of_x)
    for mine, layer in ((ours, tanh_layer), (theirs, reference)):
        layer(*mine).square().sum().backward()
    assert torch.equal(tanh_layer(*ours), tanh_layer(*given)), "acting and learning differ"
    torch.testing.assert_close(tanh_layer(*given), reference(*given), rtol=0, atol=1e-5)
    for mine, its in list(zip(ours, theirs, strict=True))[0 if of_x else 1 :]:
        torch.testing.assert_close(mine.grad, its.grad, rtol=1e-4, atol=1e-4)


def of_one(number: torch.Tensor) -> torch.Tensor:
    """Return tanh of `number` [N], computed by a layer with one input and weight 1."""
    one = torch.ones(1, 1, dtype=number.dtype)
    return tanh_layer(number[:, None], one, torch.zeros(1, dtype=number.dtype))[:, 0]


def test_tanh_equals_torchs_to_within_rounding() -> None:
    given = torch.linspace(-12, 12, 100_000)
    torch.testing.assert_close(of_one(given), torch.tanh(given), rtol=0, atol=2e-7)


def test_tanh_in_float64_equals_torchs() -> None:
    given = torch.linspace(-12, 12, 1001, dtype=torch.float64)
    assert torch.equal(of_one(given), torch.tanh(given))


def test_tanh_of_nan_is_nan_and_of_infinities_is_one() -> None:
    assert of_one(torch.tensor([float("nan")])).isnan().all()
    assert of_one(torch.tensor([float("inf"), -float("inf")])).tolist() == [1.0, -1.0]
