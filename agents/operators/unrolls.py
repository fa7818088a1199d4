"""Unroll: the inputs of all returns, and the two computations that returns share."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from agents.native import sums


@dataclass(frozen=True, eq=False)
class Unroll:
    """T steps of N environments, time-major; with C reward channels if each has a value of its own.

    Floats have one dtype, float32 or float64; all tensors are on one device. Raises ValueError for shapes that differ.
    """

    reward: Tensor  # [T, N] or [T, N, C]
    value: Tensor  # like reward: V(observation at step t)
    terminated: Tensor  # bool [T, N]: the episode ended at step t, and is worth nothing afterwards
    truncated: Tensor  # bool [T, N]: it was cut off at step t, before its end
    final_value: Tensor  # like reward: V(the observation that was cut off); only read where truncated
    bootstrap_value: Tensor  # [N] or [N, C]: V(the observation after step T - 1); only read where that episode goes on

    def __post_init__(self) -> None:
        expected = {  # broadcasting would make wrong numbers out of wrong shapes
            "value": self.reward.shape,
            "terminated": self.reward.shape[:2],
            "truncated": self.reward.shape[:2],
            "final_value": self.reward.shape,
            "bootstrap_value": self.reward.shape[1:],
        }
        problems = [
            f"{name} must be {list(shape)}, is {list(getattr(self, name).shape)}"
            for name, shape in expected.items()
            if getattr(self, name).shape != shape
        ]
        if problems:
            raise ValueError(f"for rewards {list(self.reward.shape)}, {'; '.join(problems)}")

    @property
    def goes_on(self) -> Tensor:
        """Return True at steps after which the episode goes on: bool [T, N], or [T, N, 1] with channels."""
        return self.per_channel(~(self.terminated | self.truncated))

    @property
    def next_value(self) -> Tensor:
        """Return V of the state after each step, shaped as `value`.

        It is 0 after a termination, `final_value` after a truncation (Pardo et al. 2018), else the next step's value. A
        step with both flags counts as terminated.
        """
        return self.followed_by(self.value)

    def followed_by(self, x: Tensor) -> Tensor:
        """Return x_{t+1} of an estimate `x` shaped as value; at ends of episodes the same as `next_value`."""
        at_end = self.final_value.masked_fill(self.per_channel(self.terminated), 0)
        return torch.where(self.goes_on, torch.cat([x[1:], self.bootstrap_value[None]]), at_end)

    def per_channel(self, x: Tensor) -> Tensor:
        """Return `x` [T, N] as [T, N, 1] where there are channels, so that it broadcasts over them."""
        return x.unsqueeze(-1) if self.reward.dim() > x.dim() else x


def weighted_channels(x: Tensor, coefficients: Tensor | None, scale: Tensor | None = None) -> Tensor:
    """Return sum_c coefficient_c x_c, [T, N], of advantages [T, N, C]; without coefficients [C], `x` [T, N] itself.

    The policy gradient is linear in its advantages, so this weights each reward channel's loss (Vinyals et al. 2019).
    With a `scale` [C] (or one number), by which values are normalised, x_c is divided by it (Hessel et al. 2019).
    """
    if scale is not None:
        x = x / scale.squeeze()
    return x if coefficients is None else x @ coefficients


def chosen(valid: Tensor | None, *tensors: Tensor) -> tuple[Tensor, ...]:
    """Return the elements [B, ...] of tensors [T, N, ...] where `valid` bool [T, N]; for None, the tensors."""
    return tensors if valid is None else tuple(tensor[valid] for tensor in tensors)


def sum_from_the_end(term: Tensor, decay: Tensor) -> Tensor:
    """Return x [T, ...], x_t = term_t + decay_t x_{t+1}, x_T = 0; `decay` broadcasts to `term`. Differentiable."""
    if (found := sums.sum_from_the_end(term, decay)) is not None:
        return found
    if term.is_cuda:
        return by_doubling(term, decay)
    following = torch.zeros_like(term[0])
    parts = []
    for step_term, step_decay in zip(reversed(term.unbind()), reversed(decay.unbind()), strict=True):
        following = torch.addcmul(step_term, step_decay, following)
        parts.append(following)
    parts.reverse()
    return torch.stack(parts)


def by_doubling(term: Tensor, decay: Tensor) -> Tensor:
    """Return what `sum_from_the_end` does, by some log2 T operations in place of T: for devices that run them at once.

    After n of them each x_t is the sum of the first 2^n terms from t on, and `factor` the product of their decays.
    """
    total, factor, reach = term, decay, 1
    while reach < len(term):
        factor = factor[: len(term) - reach]
        total = torch.cat([torch.addcmul(total[:-reach], factor, total[reach:]), total[-reach:]])
        factor = factor[:-reach] * factor[reach:]
        reach *= 2
    return total
