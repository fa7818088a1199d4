"""Multiplicative weights (Hedge): a mixture that learns, without regret, from what each of its members earned."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def multiplicative_weights(gains: ArrayLike, rate: float) -> NDArray[np.float64]:
    """Return the mixtures p_0 to p_T of n members, (T + 1, n), after their `gains` (T, n) of T rounds.

    p_0 is uniform and p_t(a) in proportion to p_(t-1)(a) exp(rate gain_t(a)) (Freund and Schapire 1999, "Adaptive game
    playing using multiplicative weights"). A member that was not measured in a round has the gain NaN and keeps its
    weight.
    """
    earned = np.nan_to_num(np.asarray(gains, np.float64), nan=0.0)
    logits = rate * np.vstack([np.zeros(earned.shape[1]), earned.cumsum(axis=0)])
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    found: NDArray[np.float64] = weights / weights.sum(axis=1, keepdims=True)
    return found
