"""The terms of a policy-gradient loss: each takes tensors of one shape, such as [B], and returns a scalar to minimise.

Shapes that differ raise ValueError: broadcasting [B] with [B, 1] would make a loss of B x B pairs.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from warren.errors import UnknownName


def clipped_surrogate(ratio: Tensor, advantage: Tensor, clip_range: float) -> Tensor:
    """Return -E[min(r A, clip(r, 1 - c, 1 + c) A)]: eq. 7 of Schulman et al. 2017.

    `ratio` r: pi(a|s) / pi_behaviour(a|s).
    """
    _same_shape(ratio=ratio, advantage=advantage)
    clipped = ratio.clamp(1 - clip_range, 1 + clip_range)
    return -torch.min(ratio * advantage, clipped * advantage).mean()


def policy_gradient(log_prob: Tensor, advantage: Tensor) -> Tensor:
    """Return -E[log pi(a|s) A], the loss of A2C (Mnih et al. 2016) and, with V-trace's advantage, of IMPALA.

    No gradient flows into A.
    """
    _same_shape(log_prob=log_prob, advantage=advantage)
    return -(log_prob * advantage.detach()).mean()


def target_ratio(log_prob: Tensor, behaviour_log_prob: Tensor, target_log_prob: Tensor, clip: float = 2.0) -> Tensor:
    """Return min(mu / pi', clip) pi / mu [B]: the ratio of APPO, for `clipped_surrogate` with V-trace's advantage.

    `target_log_prob` is of pi', the learner's older weights, with which V-trace was computed; `behaviour_log_prob` is
    of mu, which acted. The ratio equals pi / pi', which clipping bounds whatever mu was, except for actions that were
    more than `clip` times as likely under mu as under pi'. From Luo et al. 2020 (IMPACT), section 3.1, with `clip` as
    in RLlib's APPO. Sample Factory's APPO takes pi / mu, by which V-trace's advantage is weighted already.
    """
    return (behaviour_log_prob - target_log_prob).exp().clamp(max=clip) * (log_prob - behaviour_log_prob).exp()


def value_loss(
    value: Tensor,
    target: Tensor,
    old_value: Tensor | None = None,
    clip_range: float | None = None,
    scale: Tensor | None = None,
) -> Tensor:
    """Return E[(V - target)^2]; with a clip range, the larger of that and the error of V clipped (as in ppo2).

    The clipped V is within `clip_range` of `old_value`. Errors and the clip range are in units of `scale`, a number or
    one per channel, where values are normalised by it. The loss of CleanRL and baselines' ppo2 is half of this one:
    their value coefficient c is c / 2 here.
    """
    _same_shape(value=value, target=target)
    if scale is not None:
        scale = scale.squeeze()
        value, target = value / scale, target / scale
        old_value = None if old_value is None else old_value / scale
    squared_error = (value - target).square()
    if old_value is None or clip_range is None:
        return squared_error.mean()
    clipped = old_value + (value - old_value).clamp(-clip_range, clip_range)
    return torch.max(squared_error, (clipped - target).square()).mean()


def huber_value_loss(value: Tensor, target: Tensor, delta: float) -> Tensor:
    """Return E[e^2 where |e| <= delta, else delta (2 |e| - delta)], e = V - target: twice the loss of Huber 1964.

    It equals `value_loss` for small errors; the gradient of a large error is at most 2 delta.
    """
    _same_shape(value=value, target=target)
    error = (value - target).abs()
    inside = error.clamp(max=delta)
    return (inside * (2 * error - inside)).mean()


def teacher_loss(
    divergence: Mapping[str, Tensor], coefficients: Mapping[str, float], used: Mapping[str, Tensor] | None = None
) -> Tensor:
    """Return the sum over the heads of coefficient * E[KL(teacher || student)], a scalar.

    This is distillation (Rusu et al. 2016) and AlphaStar's teacher term. `divergence`: head name -> [B], as
    `Policy.kl(teacher's statistics, student's)` returns it. `used`: bool [B] of heads that not every action has (a
    target only where there is something to aim at); steps without the head count as 0. Heads without a coefficient do
    not count. Raises UnknownName for a coefficient or a `used` of an unknown head.
    """
    used = used or {}
    for name in (*coefficients, *used):
        if name not in divergence:
            raise UnknownName("policy head", name, divergence)
    loss = next(iter(divergence.values())).new_zeros(())
    for name, coefficient in coefficients.items():
        head = divergence[name]
        loss = loss + coefficient * (head.where(used[name], 0) if name in used else head).mean()
    return loss


def standardize(x: Tensor) -> Tensor:
    """Return `x` with mean 0 and (unbiased) standard deviation 1; a single element is returned unchanged."""
    return (x - x.mean()) / (x.std() + 1e-8) if x.numel() > 1 else x


def approximate_kl(log_ratio: Tensor, ratio: Tensor) -> Tensor:
    """Return E[(r - 1) - log r], an unbiased low-variance estimate of KL(behaviour || pi).

    See joschu.net/blog/kl-approx.html.
    """
    return (ratio - 1 - log_ratio).mean()


def explained_variance(prediction: Tensor, target: Tensor, dim: int | None = None) -> Tensor:
    """Return 1 - Var[target - prediction] / Var[target]: a scalar, or along the dimension `dim` alone.

    1 is perfect, 0 no better than a constant prediction; NaN for a constant target.
    """
    variance = target.var(dim, correction=0)
    return torch.where(variance == 0, torch.nan, 1 - (target - prediction).var(dim, correction=0) / variance)


def _same_shape(**tensors: Tensor) -> None:
    (one, a), (other, b) = tensors.items()
    if a.shape != b.shape:
        raise ValueError(f"{one} {list(a.shape)} and {other} {list(b.shape)} must have one shape")
