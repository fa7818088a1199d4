"""Confidence intervals for mean returns that all hold at once, however often they are computed, whenever play stops.

An interval of 1.96 standard errors is right only for a number of games that was fixed in advance. If one looks after
every batch and stops when the interval is narrow enough, it misses far more often than one time in twenty
(docs/strength_figures.md has figures). A confidence sequence misses, at any time at all, with a chance of at most
`alpha`.

For X in [0, 1] with mean m, any constants c in [0, 1] and s in (0, 1), with psi(s) = -log(1 - s) - s:

    E exp(s (X - m) - psi(s) (X - c)^2) <= 1

(Fan, Grama and Liu 2015, "Exponential inequalities for martingales with applications", as in the empirical-Bernstein
bounds of Howard, Ramdas, McAuliffe and Sekhon 2021, "Time-uniform, nonparametric, nonasymptotic confidence sequences",
and of Waudby-Smith and Ramdas 2023, "Estimating means of bounded random variables by betting", Theorem 2). So the
product over independent games is a supermartingale from 1, and by Ville's inequality exceeds 1 / a at any time with a
chance of at most a. Waudby-Smith and Ramdas adapt s and c to the games, in their order; here they are constants of a
grid, each with its part of `alpha`, and the tightest bound counts. That costs some width (it is about twice 1.96
standard errors at 10,000 games), but the bound needs games, sum and sum of squares alone, which add up in any order.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

CENTERS = 33  # values of c, evenly over the range; half of `alpha` goes to the middle, where games between equals are
SCALES = np.concatenate([[0.9], 0.5 ** np.arange(1.0, 18.0)])  # values of s: from a dozen games to 10^10


def confidence_sequence(
    games: ArrayLike, total: ArrayLike, squares: ArrayLike, bound: float, alpha: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return (lower, upper) of each mean return, shaped as `games`, the sums of returns `total` and of their `squares`.

    Returns of single games lie within [-bound, bound]. All intervals of one cell together miss its mean with a chance
    of at most `alpha`; without games the interval is the whole range. Where all games had the same return, the width
    falls as 1 / games and is never zero: a return that was not seen in n games may still come in the next.
    """
    n = np.asarray(games, np.float64)
    one = (np.asarray(total, np.float64) / bound + n) / 2.0  # sum of X in [0, 1]
    two = np.asarray(squares, np.float64) / (4.0 * bound**2) + one - n / 4.0  # sum of X^2: X = (return / bound + 1) / 2
    lower = _lower(n, one, two, alpha / 2.0)
    upper = 1.0 - _lower(n, n - one, n - 2.0 * one + two, alpha / 2.0)
    return (2.0 * lower - 1.0) * bound, (2.0 * upper - 1.0) * bound


def _lower(
    n: NDArray[np.float64], one: NDArray[np.float64], two: NDArray[np.float64], alpha: float
) -> NDArray[np.float64]:
    """Return the lower bound, at level `alpha`, of means of X in [0, 1] from their number, sum and sum of squares."""
    best = np.zeros_like(n)
    safe = np.maximum(n, 1.0)
    nearest = np.rint(one / safe * (CENTERS - 1)) / (CENTERS - 1)
    # Only the two centers that can be best are tried: the best bound of any part of the grid is valid too.
    for center, part in ((np.full_like(n, 0.5), 0.5), (nearest, 0.5 / CENTERS)):
        spread = np.maximum(two - 2.0 * center * one + n * np.square(center), 0.0)
        cost = np.log(len(SCALES) / (alpha * part))
        for scale in SCALES:
            psi = -np.log1p(-scale) - scale
            best = np.maximum(best, (one - (psi * spread + cost) / scale) / safe)
    return np.where(n > 0.0, np.minimum(best, one / safe), 0.0)
