"""Quantal response equilibrium of an estimated meta-game: a Nash mixture that does not believe its payoffs too much.

Payoffs that were estimated by play are off by their standard errors, and a linear program puts all its weight where
they happen to be off upwards. A quantal response equilibrium (McKelvey and Palfrey 1995) plays x_i proportional to
exp((A y)_i / t): players who cannot be told apart at the temperature t are played alike, and where differences are
clear it is Nash's. With t at the size of the errors it is the mixture to play; as t falls to 0 it tends to Nash.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from warren.errors import LeagueError

Mixture = NDArray[np.float64]


def quantal_response(
    payoff: ArrayLike, temperature: float, tolerance: float = 1e-4, most_steps: int = 20_000
) -> tuple[Mixture, Mixture]:
    """(mixture of the rows, mixture of the columns) of a zero-sum game, payoff (n, m) to the rows, which maximise.

    Magnetic mirror descent with the uniform mixture as its magnet (Sokota et al. 2023), which converges linearly to
    the one such equilibrium; it ends when no probability changes by more than `tolerance` of itself, per unit of step.
    Raises LeagueError for a temperature or payoffs that do not make a game.
    """
    matrix = np.asarray(payoff, dtype=np.float64)
    if matrix.ndim != 2 or matrix.size == 0 or not np.isfinite(matrix).all():
        raise LeagueError(f"a matrix game needs finite payoffs of shape (rows, columns); got shape {matrix.shape}")
    if not temperature > 0.0:
        raise LeagueError(f"temperature {temperature} of a quantal response is not positive; use Nash for none")
    largest = np.abs(matrix).max()
    if largest == 0.0:
        return np.full(matrix.shape[0], 1.0 / matrix.shape[0]), np.full(matrix.shape[1], 1.0 / matrix.shape[1])
    step = min(temperature / largest**2, 1.0 / temperature)  # the theorem's bound on the step: temperature / L^2
    x, y = np.zeros(matrix.shape[0]), np.zeros(matrix.shape[1])  # logits
    p, q = _softmax(x), _softmax(y)
    for _ in range(most_steps):
        x = (x + step * (matrix @ q)) / (1.0 + step * temperature)
        y = (y - step * (p @ matrix)) / (1.0 + step * temperature)
        before, p, q = (p, q), _softmax(x), _softmax(y)
        if max(np.abs(p - before[0]).max(), np.abs(q - before[1]).max()) < tolerance * step * temperature:
            break
    return p, q


def _softmax(logits: NDArray[np.float64]) -> Mixture:
    values: Mixture = np.exp(logits - logits.max())
    values /= values.sum()
    return values
