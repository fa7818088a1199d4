"""Blocks of networks against torch's own."""

from __future__ import annotations

import pytest
import torch

from agents.operators.blocks import tanh


@pytest.mark.parametrize("size", [1, 1000, 100_000])
def test_tanh_and_its_gradient_are_torchs_own_to_within_rounding(size: int) -> None:
    given = torch.linspace(-12, 12, size)
    ours, theirs = (given.clone().requires_grad_() for _ in range(2))
    for mine, function in ((ours, tanh), (theirs, torch.tanh)):
        function(mine).square().sum().backward()
    assert torch.equal(tanh(ours), tanh(given)), "acting and learning differ"
    torch.testing.assert_close(tanh(given), torch.tanh(given), rtol=0, atol=2e-7)
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=0, atol=1e-6)


def test_tanh_in_float64_is_torchs_own() -> None:
    given = torch.linspace(-12, 12, 1001, dtype=torch.float64)
    assert torch.equal(tanh(given), torch.tanh(given))


def test_tanh_of_what_is_not_a_number_is_none() -> None:
    assert tanh(torch.tensor([float("nan")])).isnan().all()
    assert tanh(torch.tensor([float("inf"), -float("inf")])).tolist() == [1.0, -1.0]
