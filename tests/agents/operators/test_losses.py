import math

import numpy as np
import pytest
import torch

from agents.operators.losses import (
    approximate_kl,
    clipped_surrogate,
    explained_variance,
    huber_value_loss,
    policy_gradient,
    standardize,
    target_ratio,
    teacher_loss,
    value_loss,
)
from warren.errors import UnknownName


def test_the_surrogate_clips_only_ratios_that_would_gain():
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
    # Clipped to within 0.5 of 0, both values are 0.5: errors of 1.5 against 1, and of 3.5 against 4.
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


def random_terms(count, seed=0, size=40):
    """Return `count` independent float64 columns that require gradients."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(size, generator=generator, dtype=torch.float64, requires_grad=True) for _ in range(count)]


@pytest.mark.parametrize("seed", range(5))
def test_the_losses_equal_loops_over_their_elements(seed):
    log_prob, behaviour, target_log_prob, advantage, value, target, old = random_terms(7, seed)
    rows = [[x.item() for x in row] for row in zip(log_prob, behaviour, target_log_prob, advantage, strict=True)]
    errors = [(v - t).item() for v, t in zip(value, target, strict=True)]
    size = len(rows)

    assert policy_gradient(log_prob, advantage).item() == pytest.approx(-sum(p * a for p, _, _, a in rows) / size)

    ratios = [min(math.exp(b - t), 2.0) * math.exp(p - b) for p, b, t, _ in rows]
    assert target_ratio(log_prob, behaviour, target_log_prob).tolist() == pytest.approx(ratios)
    surrogate = [min(r * a, min(max(r, 0.8), 1.2) * a) for r, (_, _, _, a) in zip(ratios, rows, strict=True)]
    ratio = torch.tensor(ratios, dtype=torch.float64)
    assert clipped_surrogate(ratio, advantage, 0.2).item() == pytest.approx(-sum(surrogate) / size)

    assert value_loss(value, target).item() == pytest.approx(sum(e * e for e in errors) / size)
    held = [
        (o + min(max(v - o, -0.3), 0.3) - t) ** 2
        for v, t, o in zip(value.tolist(), target.tolist(), old.tolist(), strict=True)
    ]
    clipped = sum(max(e * e, h) for e, h in zip(errors, held, strict=True)) / size
    assert value_loss(value, target, old, 0.3).item() == pytest.approx(clipped)
    huber = sum(e * e if abs(e) <= 0.7 else 0.7 * (2 * abs(e) - 0.7) for e in errors) / size
    assert huber_value_loss(value, target, 0.7).item() == pytest.approx(huber)


def test_the_gradients_of_the_losses_are_right():
    one, two, three = random_terms(3, size=6)
    with torch.no_grad():
        two.mul_(3)  # on both sides of every bound
    constant = two.detach()
    for loss, inputs in (
        (lambda log_prob: policy_gradient(log_prob, constant), [one]),
        (lambda *log_probs: target_ratio(*log_probs).sum(), [one, two, three]),
        (lambda ratio: clipped_surrogate(ratio, constant, 0.2), [one]),
        (value_loss, [one, two]),
        (lambda value: value_loss(value, constant, three.detach(), 0.3), [one]),
        (lambda *terms: huber_value_loss(*terms, delta=0.5), [one, two]),
        (lambda *heads: teacher_loss({"a": heads[0], "b": heads[1]}, {"a": 0.5, "b": 2.0}), [one, two]),
    ):
        assert torch.autograd.gradcheck(loss, inputs)


def test_the_policy_gradient_does_not_flow_into_the_advantage():
    log_prob, advantage = random_terms(2)
    policy_gradient(log_prob, advantage).backward()
    assert advantage.grad is None
    torch.testing.assert_close(log_prob.grad, -advantage.detach() / len(advantage))


def test_the_ratio_is_to_the_target_policy_unless_the_behaviour_ratio_is_clipped():
    log_prob, behaviour, target = (torch.tensor(p).log() for p in ([0.3, 0.3], [0.2, 0.9], [0.5, 0.1]))
    assert target_ratio(log_prob, behaviour, target).tolist() == pytest.approx([0.3 / 0.5, 2 * 0.3 / 0.9])
    assert target_ratio(log_prob, behaviour, target, clip=math.inf).tolist() == pytest.approx([0.6, 3.0])


def test_a_huber_loss_is_squared_for_small_errors_and_twice_torchs():
    value, target = random_terms(2)
    assert huber_value_loss(value, target, 100.0).item() == pytest.approx(value_loss(value, target).item())
    expected = 2 * torch.nn.functional.huber_loss(value, target, delta=0.5)
    assert huber_value_loss(value, target, 0.5).item() == pytest.approx(expected.item())


def test_a_teachers_heads_are_weighted_by_coefficient_and_masked_where_unused():
    divergence = {"kind": torch.tensor([1.0, 3.0]), "target": torch.tensor([4.0, torch.inf]), "queue": torch.ones(2)}
    coefficients = {"kind": 0.5, "target": 0.25}
    loss = teacher_loss(divergence, coefficients, used={"target": torch.tensor([True, False])})
    assert loss.item() == 0.5 * 2 + 0.25 * 4 / 2
    assert teacher_loss(divergence, {}).item() == 0


def test_a_coefficient_of_an_unknown_head_is_refused_with_a_near_name():
    with pytest.raises(UnknownName, match="policy head 'targte' does not exist; did you mean target"):
        teacher_loss({"kind": torch.ones(2), "target": torch.ones(2)}, {"targte": 1.0})


@pytest.mark.parametrize("loss", [policy_gradient, value_loss, huber_value_loss, clipped_surrogate])
def test_losses_refuse_to_broadcast_columns_against_rows(loss):
    settings = {huber_value_loss: (1.0,), clipped_surrogate: (0.2,)}.get(loss, ())
    with pytest.raises(ValueError, match=r"\[4\] and \w+ \[4, 1\] must have one shape"):
        loss(torch.zeros(4), torch.zeros(4, 1), *settings)
