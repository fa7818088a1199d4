import numpy as np
import pytest
import torch

from agents.operators.losses import (
    approximate_kl,
    clipped_surrogate,
    explained_variance,
    standardize,
    value_loss,
)


def test_the_surrogate_clips_only_what_would_gain():
    ratio = torch.tensor([1.5, 0.5, 1.5, 0.5], requires_grad=True)
    advantage = torch.tensor([1.0, 1.0, -1.0, -1.0])
    loss = clipped_surrogate(ratio, advantage, 0.2)
    assert loss.item() == pytest.approx(-(1.2 + 0.5 - 1.5 - 0.8) / 4)
    (gradient,) = torch.autograd.grad(loss, ratio)
    torch.testing.assert_close(gradient, torch.tensor([0.0, -0.25, 0.25, 0.0]))


def test_the_value_loss_is_the_squared_error():
    value, target = torch.tensor([1.0, 2.0]), torch.tensor([2.0, 4.0])
    assert value_loss(value, target, old_value=torch.zeros(2)).item() == 2.5


def test_a_clipped_value_loss_takes_the_larger_error():
    value, old, target = torch.tensor([1.0, 1.0]), torch.tensor([0.0, 0.0]), torch.tensor([2.0, -3.0])
    # Held within 0.5 of 0 both are 0.5: an error of 1.5 against 1 for the first, 3.5 against 4 for the second.
    assert value_loss(value, target, old, clip_range=0.5).item() == pytest.approx((1.5**2 + 4**2) / 2)


def test_standardized_numbers_have_mean_zero_and_deviation_one():
    x = standardize(torch.tensor([1.0, 5.0, 9.0]))
    assert x.tolist() == pytest.approx([-1, 0, 1])


def test_a_lone_number_is_not_standardized():
    assert standardize(torch.tensor([3.0])).item() == 3.0


def test_the_approximate_kl_estimates_the_kl_between_categoricals():
    generator = torch.Generator().manual_seed(0)
    old, new = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.4, 0.4, 0.2])
    action = torch.multinomial(old, 200_000, replacement=True, generator=generator)
    log_ratio = (new.log() - old.log())[action]
    exact = (old * (old / new).log()).sum().item()
    assert approximate_kl(log_ratio, log_ratio.exp()).item() == pytest.approx(exact, rel=0.02)


def test_explained_variance_is_one_for_the_target_zero_for_a_constant():
    target = torch.tensor([1.0, 2.0, 4.0])
    assert explained_variance(target, target).item() == 1
    assert explained_variance(torch.full((3,), 7.0), target).item() == pytest.approx(0, abs=1e-6)
    assert explained_variance(-target, target).item() < 0
    assert np.isnan(explained_variance(target, torch.ones(3)).item())
