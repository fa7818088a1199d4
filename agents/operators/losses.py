"""The terms of a policy-gradient loss: each takes tensors [B] and returns a scalar to be minimised."""

from __future__ import annotations

import torch
from torch import Tensor


def clipped_surrogate(ratio: Tensor, advantage: Tensor, clip_range: float) -> Tensor:
    """-E[min(r A, clip(r, 1 - c, 1 + c) A)]: eq. 7 of Schulman et al. 2017. `ratio`: pi(a|s) / pi_behaviour(a|s)."""
    clipped = ratio.clamp(1 - clip_range, 1 + clip_range)
    return -torch.min(ratio * advantage, clipped * advantage).mean()


def value_loss(value: Tensor, target: Tensor, old_value: Tensor, clip_range: float | None = None) -> Tensor:
    """E[(V - target)^2]; with a clip range, the larger of that and of V held as near to `old_value` (as in ppo2).

    Half of it is the loss of CleanRL and baselines' ppo2: their value coefficient c is c / 2 here.
    """
    squared_error = (value - target).square()
    if clip_range is None:
        return squared_error.mean()
    clipped = old_value + (value - old_value).clamp(-clip_range, clip_range)
    return torch.max(squared_error, (clipped - target).square()).mean()


def standardize(x: Tensor) -> Tensor:
    """`x` with mean 0 and (unbiased) standard deviation 1; a lone element is left as it is."""
    return (x - x.mean()) / (x.std() + 1e-8) if x.numel() > 1 else x


def approximate_kl(log_ratio: Tensor, ratio: Tensor) -> Tensor:
    """E[(r - 1) - log r], an unbiased low-variance estimate of KL(behaviour || pi): joschu.net/blog/kl-approx.html."""
    return (ratio - 1 - log_ratio).mean()


def explained_variance(prediction: Tensor, target: Tensor) -> Tensor:
    """1 - Var[target - prediction] / Var[target]: 1 is perfect, 0 no better than a constant; nan if target is one."""
    variance = target.var(correction=0)
    return torch.where(variance == 0, torch.nan, 1 - (target - prediction).var(correction=0) / variance)
