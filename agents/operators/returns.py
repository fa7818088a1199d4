"""Returns: estimates of the discounted sum of rewards from each step on."""

from __future__ import annotations

from torch import Tensor

from agents.operators.advantages import gae
from agents.operators.unrolls import Unroll


def n_step_return(unroll: Unroll, gamma: float | Tensor, n: int) -> Tensor:
    """Return the n-step return, shaped as reward: eq. 7.1 of Sutton & Barto 2018.

    G_t = r_t + gamma r_{t+1} + ... + gamma^{n-1} r_{t+n-1} + gamma^n V_{t+n}, over fewer than `n` steps where the
    episode or the unroll ends sooner; n >= T takes all steps there are (A2C, Mnih et al. 2016). `gamma` is a number or
    [C]. Differentiable. Raises ValueError for n below 1.
    """
    if n < 1:
        raise ValueError(f"n={n} of an n-step return must be at least 1")
    target = unroll.reward + gamma * unroll.next_value
    for _ in range(min(n, len(target)) - 1):
        target = unroll.reward + gamma * unroll.followed_by(target)
    return target


def lambda_return(unroll: Unroll, gamma: float | Tensor, lambda_: float | Tensor) -> Tensor:
    """Return the target of TD(lambda), shaped as reward: eq. 12.18 of Sutton & Barto 2018.

    G_t = r_t + gamma ((1 - lambda) V_{t+1} + lambda G_{t+1}), which is GAE plus the value. `gamma` is a number or [C];
    `lambda_` is a number, or a tensor shaped as reward, whose element t is the weight of G_{t+1} against V_{t+1}.
    lambda = 1 gives the discounted return, 0 the one-step return. Differentiable.
    """
    return unroll.value + gae(unroll, gamma, lambda_)
