"""Generalized advantage estimation, of numpy arrays and of tensors.

There are two forms, which round differently. `generalized_advantage` takes arrays as they come off the wire, read-only
and on the CPU; its T small steps over [N] cost half of what they do in torch. `gae` takes values that the learner
computed, on any device, with reward channels and gradients.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor

from agents.operators.unrolls import Unroll, sum_from_the_end


def generalized_advantage(
    reward: np.ndarray,
    value: np.ndarray,
    terminated: np.ndarray,
    truncated: np.ndarray,
    final_value: np.ndarray,
    bootstrap_value: np.ndarray,
    gamma: float,
    gae_lambda: float,
) -> np.ndarray:
    """Return GAE(gamma, lambda), float32 [T, N]: eqs. 11-12 of Schulman et al. 2016.

    All inputs are [T, N], `bootstrap_value` [N]; rewards, values and advantages may have C channels, [T, N, C].

    The value after a terminated episode is 0. After a truncated one it is `final_value`, the value of its last
    observation (Pardo et al. 2018). No sum runs past the end of an episode.
    """
    if reward.ndim > terminated.ndim:
        terminated, truncated = terminated[..., None], truncated[..., None]
    goes_on = ~(terminated | truncated)
    next_value = np.concatenate([value[1:], bootstrap_value[None]])
    next_value = np.where(goes_on, next_value, np.where(truncated & ~terminated, final_value, np.float32(0)))
    delta = reward + np.float32(gamma) * next_value - value
    decay = np.float32(gamma * gae_lambda) * goes_on
    advantage: np.ndarray = np.empty_like(delta)
    following = np.zeros_like(bootstrap_value)
    for step in range(len(delta) - 1, -1, -1):
        following = delta[step] + decay[step] * following
        advantage[step] = following
    return advantage


def gae(unroll: Unroll, gamma: float | Tensor, lambda_: float | Tensor) -> Tensor:
    """Return the same for tensors, shaped as reward.

    A_t = delta_t + gamma lambda A_{t+1}, delta_t = r_t + gamma V_{t+1} - V_t.
    `gamma` is a number or [C], `lambda_` a number or a tensor as reward. Differentiable.
    """
    delta = unroll.reward + gamma * unroll.next_value - unroll.value
    return sum_from_the_end(delta, gamma * lambda_ * unroll.goes_on.to(delta.dtype))
