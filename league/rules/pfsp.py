"""Prioritized fictitious self-play: opponents in proportion to a weighting of the win rate against them.

Source: Vinyals et al. 2019, "Grandmaster level in StarCraft II using multi-agent reinforcement learning", Methods,
and its published pseudocode. With w the win rate of the player against each candidate, p = f(w) / sum f(w).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from warren.errors import MatchmakingError
from warren.registry import Registry

Weighting = Callable[[NDArray[np.float64]], NDArray[np.float64]]

WEIGHTINGS: Registry[Weighting] = Registry("PFSP weighting")

NEGLIGIBLE = 1e-10  # a smaller sum of weights cannot rank anyone: choose uniformly


@WEIGHTINGS.register("variance")
def variance(w: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return f(w) = w (1 - w): opponents of equal strength first."""
    return w * (1.0 - w)


@WEIGHTINGS.register("linear")
def linear(w: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return f(w) = 1 - w: the harder, the more often."""
    return 1.0 - w


@WEIGHTINGS.register("linear_capped")
def linear_capped(w: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return f(w) = min(1/2, 1 - w): harder ones more often, but hopeless ones no more often than equals."""
    return np.minimum(0.5, 1.0 - w)


@WEIGHTINGS.register("squared")
def squared(w: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return f(w) = (1 - w)^2: the hardest above all."""
    return np.square(1.0 - w)


@WEIGHTINGS.register("uniform")
def uniform(w: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return f(w) = 1: fictitious self-play without priorities."""
    return np.ones_like(w)


def pfsp(win_rates: ArrayLike, weighting: str = "linear") -> NDArray[np.float64]:
    """Return the probability of each candidate; float64 of the shape (candidates,) of `win_rates`, summing to 1.

    They are uniform if the weights sum to less than 1e-10. Raises MatchmakingError without candidates or for a win rate
    outside [0, 1], UnknownName for an unknown weighting.
    """
    w = np.asarray(win_rates, dtype=np.float64)
    if w.ndim != 1 or w.size == 0:
        raise MatchmakingError(f"PFSP needs win rates of shape (candidates,) with at least one; got shape {w.shape}")
    # One negated comparison also refuses nan.
    if not (w.min() >= 0.0 and w.max() <= 1.0):
        wrong = next(float(value) for value in w if not 0.0 <= value <= 1.0)
        raise MatchmakingError(f"PFSP got the win rate {wrong}; win rates lie in [0, 1]")
    weights = WEIGHTINGS[weighting](w)
    total = weights.sum()
    if total < NEGLIGIBLE:
        return np.full(w.shape, 1.0 / w.size)
    probabilities: NDArray[np.float64] = weights / total
    return probabilities
