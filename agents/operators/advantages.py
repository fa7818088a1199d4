"""Advantage estimation over time-major arrays; numpy, because T small steps over [N] cost less there than in torch."""

from __future__ import annotations

import numpy as np


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
    """GAE(gamma, lambda), eqs. 11-12 of Schulman et al. 2016, float32 [T, N]; all inputs [T, N], bootstrap_value [N].

    An episode that terminated is worth nothing afterwards. One that was truncated would have gone on: the value of its
    last observation, `final_value`, takes the next value's place (Pardo et al. 2018); no sum runs on past either end.
    """
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
