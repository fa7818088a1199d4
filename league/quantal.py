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

COOLING = 0.5  # factor between the temperatures on the way down
NEWTON_STEPS = 100  # at one temperature; a handful is what it takes
SMALLEST_STEP = 2.0**-20  # of a damped Newton step, before it is given up


def quantal_response(payoff: ArrayLike, temperature: float, tolerance: float = 1e-8) -> tuple[Mixture, Mixture]:
    """(mixture of the rows, mixture of the columns) of a zero-sum game, payoff (n, m) to the rows, which maximise.

    `temperature` is in units of the payoff. In a zero-sum game there is one such equilibrium. It is followed by
    Newton's method from high temperatures, where it is near uniform, down to `temperature`; logits are exact to
    `tolerance`. Raises LeagueError for a temperature or payoffs that do not make a game.
    """
    matrix = np.asarray(payoff, dtype=np.float64)
    if matrix.ndim != 2 or matrix.size == 0 or not np.isfinite(matrix).all():
        raise LeagueError(f"a matrix game needs finite payoffs of shape (rows, columns); got shape {matrix.shape}")
    if not temperature > 0.0:
        raise LeagueError(f"temperature {temperature} of a quantal response is not positive; use Nash for none")
    at = max(float(np.abs(matrix).max()), temperature)
    logits = np.zeros(matrix.shape[0])
    while True:
        logits = _newton(matrix / at, logits, tolerance)
        if at <= temperature:
            rows = _softmax(logits)
            return rows, _softmax(-(rows @ matrix) / at)
        colder = max(at * COOLING, temperature)
        logits, at = logits * (at / colder), colder


def _newton(scaled: NDArray[np.float64], logits: NDArray[np.float64], tolerance: float) -> NDArray[np.float64]:
    """Logits u of the rows with u = B q(u), where q = softmax(-B^T softmax(u)) and B is the payoff over temperature.

    The Jacobian is I + B (diag q - q q^T) B^T (diag p - p p^T): a product of positive semidefinite matrices has no
    negative eigenvalues, so there is always a Newton step.
    """
    residual, rows, columns = _residual(scaled, logits)
    for _ in range(NEWTON_STEPS):
        if np.abs(residual).max() < tolerance:
            break
        spread = (scaled * columns) @ scaled.T - np.outer(scaled @ columns, scaled @ columns)
        jacobian = np.eye(len(logits)) + spread * rows - np.outer(spread @ rows, rows)
        direction = np.linalg.solve(jacobian, residual)
        size, worth = 1.0, np.square(residual).sum()
        while size > SMALLEST_STEP:
            found = _residual(scaled, logits - size * direction)
            if np.square(found[0]).sum() < worth:
                break
            size /= 2.0
        else:
            break  # as exact as rounding allows
        logits = logits - size * direction
        residual, rows, columns = found
    return logits


def _residual(scaled: NDArray[np.float64], logits: NDArray[np.float64]) -> tuple[NDArray[np.float64], Mixture, Mixture]:
    rows = _softmax(logits)
    columns = _softmax(-(rows @ scaled))
    return logits - scaled @ columns, rows, columns


def _softmax(logits: NDArray[np.float64]) -> Mixture:
    values: Mixture = np.exp(logits - logits.max())
    values /= values.sum()
    return values
