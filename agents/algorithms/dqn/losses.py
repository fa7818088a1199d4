"""Losses of action values: Huber's of their means, quantile regression's of their distributions."""

from __future__ import annotations

import torch
from torch import Tensor


def huber(error: Tensor, delta: float) -> Tensor:
    """Return, for each error e, e^2 / 2 where |e| <= delta, else delta (|e| - delta / 2): Huber 1964."""
    inside = error.abs().clamp(max=delta)
    return inside * (error.abs() - 0.5 * inside)


def value_errors(value: Tensor, target: Tensor, delta: float) -> Tensor:
    """Return the loss [N] of values [N, K] for targets [N, K]; no gradient flows into the targets.

    One number each: its Huber loss. K quantiles: the quantile Huber loss of Dabney et al. 2018, eq. 10, summed over the
    quantiles and averaged over the targets; it is divided by delta, as there.
    """
    if value.shape != target.shape:
        raise ValueError(f"value {list(value.shape)} and target {list(target.shape)} must have one shape")
    if value.shape[-1] == 1:
        return huber(value - target, delta).squeeze(-1)
    quantiles = value.shape[-1]
    tau = (torch.arange(quantiles, device=value.device) + 0.5) / quantiles
    error = target.unsqueeze(-2) - value.unsqueeze(-1)  # [N, quantile, target]
    share = (tau[:, None] - (error.detach() < 0).to(value.dtype)).abs()
    return (share * huber(error, delta) / delta).mean(-1).sum(-1)
