"""Returns: what each step led to."""

from __future__ import annotations

from torch import Tensor

from agents.operators.advantages import gae
from agents.operators.unrolls import Unroll


def n_step_return(unroll: Unroll, gamma: float | Tensor, n: int) -> Tensor:
    """G_t = r_t + gamma r_{t+1} + ... + gamma^{n-1} r_{t+n-1} + gamma^n V_{t+n}: eq. 7.1 of Sutton & Barto 2018.

    Fewer than `n` steps where the episode or the unroll ends sooner: all there are (A2C, Mnih et al. 2016) for n = T or
    more. Shaped as reward; `gamma` a number or [C]; differentiable. Raises ValueError for n below 1.
    """
    if n < 1:
        raise ValueError(f"n={n} of an n-step return must be at least 1")
    target = unroll.reward + gamma * unroll.next_value
    for _ in range(min(n, len(target)) - 1):
        target = unroll.reward + gamma * unroll.followed_by(target)
    return target


def lambda_return(unroll: Unroll, gamma: float | Tensor, lambda_: float | Tensor) -> Tensor:
    """G_t = r_t + gamma ((1 - lambda) V_{t+1} + lambda G_{t+1}): eq. 12.18 of Sutton & Barto 2018, TD(lambda)'s target.

    Shaped as reward; `gamma` a number or [C]. `lambda_` is a number, or a tensor as reward: lambda_[t] is how much of
    G_{t+1}, not V_{t+1}, step t sees. 1 gives the discounted return, 0 the one-step return. It is GAE plus the value.
    Differentiable.
    """
    return unroll.value + gae(unroll, gamma, lambda_)
