"""Solutions of the meta-game: a distribution over the league's players from their payoff matrix.

All take the payoff A of a symmetric zero-sum game, (n, n) with A[i, j] = -A[j, i] what i gains against j, and return
probabilities of shape (n,). From win rates w: A = 2 w - 1.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from warren.errors import LeagueError
from warren.registry import Registry

EXTINCT = 1e-12  # part of the largest share: a smaller share no longer matters to replicator dynamics
MOST_WORK = 4_000_000_000  # most multiplications in `replicator`, some seconds

Distribution = NDArray[np.float64]
MetaSolver = Callable[[NDArray[np.float64]], Distribution]

META_SOLVERS: Registry[MetaSolver] = Registry("meta-solver")


def antisymmetric(win_rates: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the zero-sum payoff 2 w - 1 of win rates w (n, n), as w - w^T, so that it is antisymmetric to the bit."""
    payoff: NDArray[np.float64] = win_rates - win_rates.T
    return payoff


def solve_zero_sum(payoff: ArrayLike) -> tuple[Distribution, float]:
    """Return (mixture of the row player, value) of a zero-sum matrix game (n, m), rows maximising, by a linear program.

    The value is the largest v with sum_i x_i A[i, j] >= v for every column j (von Neumann 1928). Raises LeagueError
    when the matrix has no entries or one that is not finite.
    """
    matrix = np.asarray(payoff, dtype=np.float64)
    if matrix.ndim != 2 or matrix.size == 0 or not np.isfinite(matrix).all():
        raise LeagueError(f"a matrix game needs finite payoffs of shape (rows, columns); got shape {matrix.shape}")
    rows, columns = matrix.shape
    from scipy.optimize import linprog  # imported here as it takes half of a command's start, and few commands need it

    solved = linprog(
        np.append(np.zeros(rows), -1.0),
        A_ub=np.hstack([-matrix.T, np.ones((columns, 1))]),
        b_ub=np.zeros(columns),
        A_eq=np.append(np.ones(rows), 0.0)[None],
        b_eq=[1.0],
        bounds=[(0.0, None)] * rows + [(None, None)],
        method="highs",
    )
    if not solved.success:
        raise LeagueError(f"no equilibrium of a {rows} x {columns} payoff was found: {solved.message}")
    mixture = np.clip(solved.x[:-1], 0.0, None)
    return mixture / mixture.sum(), float(solved.x[-1])


@META_SOLVERS.register("nash")
def nash(payoff: NDArray[np.float64]) -> Distribution:
    """Return a Nash equilibrium; where there are several, the one that the solver finds first."""
    return solve_zero_sum(payoff)[0]


@META_SOLVERS.register("uniform")
def uniform(payoff: NDArray[np.float64]) -> Distribution:
    """Return the uniform mixture, the one of fictitious self-play."""
    return np.full(len(payoff), 1.0 / len(payoff))


@META_SOLVERS.register("replicator")
def replicator(payoff: NDArray[np.float64], steps: int = 20_000, step_size: float = 0.02) -> Distribution:
    """Return the time average of replicator dynamics from the uniform mixture.

    This is the exponential form of the dynamics (multiplicative weights, Freund and Schapire 1999), which stays on the
    simplex; its time average comes within log(n) / (steps * step_size) + step_size / 2 of the value of the game. It
    takes at most `steps`, fewer once a best response gains no more than step_size / 20, or after MOST_WORK: some 4,000
    steps where 1,000 players all have shares above EXTINCT.

    Players whose share is below EXTINCT are left out of some steps, until all take part again. Meanwhile no share can
    grow by more than a factor of e^4, so the average is the same to 1e-8.
    """
    n = len(payoff)
    apart = 2.0 * float(np.abs(payoff).max(initial=0.0)) * step_size  # the most that two logits may part by in a step
    between = 100 if apart == 0.0 else max(1, min(100, int(4.0 / apart)))
    total, taken, work = np.zeros(n), 0, 0
    while taken < steps and work < MOST_WORK:
        logits = step_size * (payoff @ total)
        if taken and logits.max() <= taken * step_size * step_size / 20.0:
            break
        alive = np.flatnonzero(logits > logits.max() + np.log(EXTINCT))
        among, mine, sums = payoff[np.ix_(alive, alive)], logits[alive], np.zeros(len(alive))
        count = min(between, steps - taken)
        for _ in range(count):
            mixture = np.exp(mine - mine.max())
            mixture /= mixture.sum()
            sums += mixture
            mine += step_size * (among @ mixture)
        total[alive] += sums
        taken, work = taken + count, work + count * len(alive) ** 2 + n**2
    return total / taken


@META_SOLVERS.register("alpha_rank")
def alpha_rank(payoff: NDArray[np.float64], alpha: float = 50.0, population: int = 50) -> Distribution:
    """Return alpha-Rank of one population (Omidshafiei et al. 2019): how often evolution is found at each player.

    A mutant j takes over a population of i with probability (1 - e^u) / (1 - e^(m u)), u = alpha (A[i,j] - A[j,i]); the
    result is the stationary distribution of that Markov chain. `alpha` is the selection intensity, `population` is m.
    """
    n = len(payoff)
    if n == 1:
        return np.ones(1)
    u = alpha * (payoff - payoff.T)
    fixation = _fixation(u, population)
    np.fill_diagonal(fixation, 0.0)
    chain = fixation / (n - 1)
    np.fill_diagonal(chain, 1.0 - chain.sum(axis=1))
    # The stationary distribution: left null vector of (chain - 1), with the sum in place of one redundant equation.
    system = (chain - np.eye(n)).T
    system[-1] = 1.0
    stationary = np.clip(np.linalg.lstsq(system, np.append(np.zeros(n - 1), 1.0), rcond=None)[0], 0.0, None)
    ranked: Distribution = stationary / stationary.sum()
    return ranked


def _fixation(u: NDArray[np.float64], population: int) -> NDArray[np.float64]:
    """Return (1 - e^u) / (1 - e^(m u)) without overflow, 1/m at u = 0; never 0, so that the chain stays irreducible."""
    neutral = np.abs(u) < 1e-12
    safe = np.where(neutral, 1.0, np.clip(u, -500.0, 500.0))
    # For u > 0 both exponentials overflow first: divide by e^(m u).
    positive = np.exp(-(population - 1) * np.abs(safe)) * np.expm1(-np.abs(safe)) / np.expm1(-population * np.abs(safe))
    negative = np.expm1(-np.abs(safe)) / np.expm1(-population * np.abs(safe))
    probability = np.where(neutral, 1.0 / population, np.where(safe > 0, positive, negative))
    return np.maximum(probability, 1e-14)


def exploitability(payoff: ArrayLike, mixture: Distribution) -> float:
    """Return the gain of a best response against `mixture` in a symmetric zero-sum game; 0 at an equilibrium."""
    return float((np.asarray(payoff, dtype=np.float64) @ mixture).max())
