import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributions import Categorical, Independent, Normal, kl_divergence

from agents.operators.divergences import (
    categorical_entropy,
    categorical_kl,
    gaussian_entropy,
    gaussian_kl,
    masked_log_softmax,
    mean_log_slope,
)


def random_logits(seed, *shape, scale=3.0):
    generator = torch.Generator().manual_seed(seed)
    return (scale * torch.randn(shape, generator=generator, dtype=torch.float64)).requires_grad_()


def random_mask(seed, *shape):
    """Return a mask with at least one legal action per row, and only one in the first."""
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < 0.6
    mask[0] = False
    mask[..., 0] = True
    return mask


def probabilities(logits, legal):
    weights = [math.exp(x) if ok else 0.0 for x, ok in zip(logits, legal, strict=True)]
    return [w / sum(weights) for w in weights]


@given(seed=st.integers(0, 2**32), actions=st.integers(1, 5), masked=st.booleans())
def test_entropy_and_kl_of_categoricals_equal_sums_over_legal_actions(seed, actions, masked):
    p, q = random_logits(seed, 4, actions), random_logits(seed + 1, 4, actions)
    mask = random_mask(seed, 4, actions) if masked else None
    legal = (torch.ones(4, actions, dtype=torch.bool) if mask is None else mask).tolist()
    ps = [probabilities(*row) for row in zip(p.tolist(), legal, strict=True)]
    qs = [probabilities(*row) for row in zip(q.tolist(), legal, strict=True)]
    entropy = [-sum(x * math.log(x) for x in row if x) for row in ps]
    kl = [sum(x * math.log(x / y) for x, y in zip(*rows, strict=True) if x) for rows in zip(ps, qs, strict=True)]
    assert categorical_entropy(p, mask).tolist() == pytest.approx(entropy, abs=1e-12)
    assert categorical_kl(p, q, mask).tolist() == pytest.approx(kl, abs=1e-12)


def test_divergences_equal_those_of_torch_distributions():
    p, q = random_logits(0, 3, 2, 4), random_logits(1, 3, 2, 4)
    torch.testing.assert_close(categorical_entropy(p), Categorical(logits=p).entropy())
    torch.testing.assert_close(categorical_kl(p, q), kl_divergence(Categorical(logits=p), Categorical(logits=q)))
    mean, log_std, other_mean, other_log_std = (random_logits(seed, 3, 4, scale=1.0) for seed in range(4))
    gaussian = Independent(Normal(mean, log_std.exp()), 1)
    other = Independent(Normal(other_mean, other_log_std.exp()), 1)
    torch.testing.assert_close(gaussian_entropy(log_std), gaussian.entropy())
    torch.testing.assert_close(gaussian_kl(mean, log_std, other_mean, other_log_std), kl_divergence(gaussian, other))


def test_divergences_equal_values_worked_by_hand():
    p, q = torch.tensor([0.5, 0.5, 0.0]).log(), torch.tensor([0.25, 0.75, 0.5]).log()
    mask = torch.tensor([True, True, False])
    assert categorical_entropy(p, mask).item() == pytest.approx(math.log(2))
    assert categorical_kl(p, q, mask).item() == pytest.approx(0.5 * math.log(2) + 0.5 * math.log(2 / 3))
    mean, log_std = torch.tensor([0.0, 1.0]), torch.tensor([0.0, 0.0])
    kl = gaussian_kl(mean, log_std, torch.tensor([0.0, 3.0]), torch.tensor([math.log(2), 0.0]))
    assert kl.item() == pytest.approx(math.log(2) + 1 / 8 - 1 / 2 + 4 / 2)


@pytest.mark.parametrize("std", [1e-3, 0.3, 1.0, 4.0, 20.0])
def test_the_mean_log_slope_of_tanh_equals_its_integral(std):
    mean = torch.linspace(-30, 30, 61, dtype=torch.float64)
    noise = torch.linspace(-9, 9, 200_001, dtype=torch.float64)
    density = torch.exp(-noise.square() / 2) / math.sqrt(2 * math.pi)
    slopes = [2 * (math.log(2) - u - torch.nn.functional.softplus(-2 * u)) for u in mean[:, None] + std * noise]
    expected = torch.stack([torch.trapezoid(density * slope, noise) for slope in slopes])
    log_std = torch.full_like(mean, math.log(std))
    torch.testing.assert_close(mean_log_slope(mean, log_std), expected, atol=1e-4, rtol=0)
    single = mean_log_slope(mean.float(), log_std.float())
    torch.testing.assert_close(single, expected.float(), atol=2e-4, rtol=0)


@pytest.mark.parametrize("logits", [torch.full((2, 3), 1e4), torch.tensor([[1e4, -1e4, 0], [-1e8, 0.0, -1e8]])])
def test_extreme_logits_give_finite_numbers_and_gradients(logits):
    logits = logits.requires_grad_()
    (categorical_entropy(logits) + categorical_kl(logits, logits.flip(0).detach() / 1e4)).sum().backward()
    assert logits.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_illegal_actions_have_no_gradient_whatever_their_logits(dtype):
    logits = torch.tensor([[1.0, 2, 3], [0, 0, 0]], dtype=dtype).requires_grad_()
    other = torch.tensor([[0.0, 3, -1e4], [-1e4, 0, 1e4]], dtype=dtype).requires_grad_()
    mask = torch.tensor([[True, True, False], [False, True, False]])
    (categorical_entropy(logits, mask) + categorical_kl(logits, other, mask)).sum().backward()
    for tensor in (logits, other):
        assert tensor.grad.isfinite().all()
        assert not tensor.grad[~mask].any()
        assert tensor.grad[0, :2].all()
    assert not masked_log_softmax(logits, mask)[~mask].any()


def test_a_lone_legal_action_has_neither_entropy_nor_divergence():
    p, q = random_logits(0, 1, 3), random_logits(1, 1, 3)
    mask = torch.tensor([[False, True, False]])
    assert categorical_entropy(p, mask).item() == 0
    assert categorical_kl(p, q, mask).item() == 0


def test_the_gradients_of_divergences_are_right():
    mask = random_mask(5, 3, 4)
    p, q = random_logits(0, 3, 4, scale=1.0), random_logits(1, 3, 4, scale=1.0)
    assert torch.autograd.gradcheck(lambda p: categorical_entropy(p, mask), (p,))
    assert torch.autograd.gradcheck(lambda p, q: categorical_kl(p, q, mask), (p, q))
    assert torch.autograd.gradcheck(categorical_kl, (p, q))
    assert torch.autograd.gradcheck(gaussian_entropy, (p,))
    log_std = random_logits(2, 4, scale=0.5)  # one for all rows
    assert torch.autograd.gradcheck(gaussian_kl, (p, log_std, q, log_std.detach().clone().requires_grad_()))
