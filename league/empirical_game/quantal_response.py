"""Quantal response equilibrium of an estimated meta-game: a Nash mixture that allows for errors in its payoffs.

Payoffs estimated by play are off by their standard errors, and a linear program puts all its weight where they happen
to be too high. A quantal response equilibrium (McKelvey and Palfrey 1995) plays x_i proportional to exp((A y)_i / t).
It plays alike the players that cannot be told apart at the temperature t. Where differences are clear it is close to
Nash's, to which it tends as t falls to 0. A quarter of the standard error is a good t both for near equals and for
players far apart (tests/league/empirical_game/test_quantal_response.py measures it).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from warren.errors import LeagueError

Mixture = NDArray[np.float64]

NEWTON_STEPS = 30  # at most, at one temperature; a handful is usual
SMALLEST_STEP = 2.0**-10  # smallest damped Newton step, and smallest step in log temperature, before it gives up


def quantal_response(payoff: ArrayLike, temperature: float, tolerance: float = 1e-6) -> tuple[Mixture, Mixture]:
    """Return (mixture of the rows, mixture of the columns) of a zero-sum game; `payoff` (n, m) is the rows' gain.

    `temperature` is in units of the payoff. A zero-sum game has exactly one such equilibrium. It is followed from high
    temperatures, where it is near uniform, down to `temperature`: along the tangent, and back onto the path by Newton's
    method, logits to `tolerance`. Raises LeagueError for a temperature or payoffs that do not make a game.
    """
    matrix = np.asarray(payoff, dtype=np.float64)
    if matrix.ndim != 2 or matrix.size == 0 or not np.isfinite(matrix).all():
        raise LeagueError(f"a matrix game needs finite payoffs of shape (rows, columns); got shape {matrix.shape}")
    if not temperature > 0.0:
        raise LeagueError(f"temperature {temperature} of a quantal response is not positive; use Nash for none")
    cold = -np.log(temperature)
    at = min(-np.log(max(np.abs(matrix).max(), temperature)), cold)  # -log of the temperature reached
    point = _newton(_Point(matrix * np.exp(at), np.zeros(len(matrix))), tolerance)
    assert point is not None  # at the scale of the payoffs the equilibrium attracts
    step = 1.0
    while at < cold:
        colder = min(at + step, cold)
        ahead = point.logits + (colder - at) * point.tangent()
        found = _newton(_Point(matrix * np.exp(colder), ahead), tolerance)
        if found is not None:
            point, at, step = found, colder, 2.0 * step
        elif step > SMALLEST_STEP:
            step /= 2.0
        else:
            raise LeagueError(f"no quantal response at temperature {temperature:g} was found; ask for a higher one")
    return point.rows, point.columns


class _Point:
    """Logits u of the rows; an equilibrium where u = B q, q = softmax(-B^T p), p = softmax(u), B = payoff / t."""

    def __init__(self, scaled: NDArray[np.float64], logits: NDArray[np.float64]) -> None:
        self.scaled, self.logits = scaled, logits
        self.rows = _softmax(logits)
        self.against = -(self.rows @ scaled)
        self.columns = _softmax(self.against)
        self.gains = scaled @ self.columns
        self.residual = logits - self.gains

    def newton(self) -> NDArray[np.float64]:
        """Return the Newton step: it would end at the equilibrium if the residual were linear."""
        return np.asarray(np.linalg.solve(self._jacobian(), self.residual))

    def tangent(self) -> NDArray[np.float64]:
        """Return the derivative of the equilibrium's logits with respect to -log of the temperature."""
        moved = self.columns * (self.against - self.columns @ self.against)
        return np.asarray(np.linalg.solve(self._jacobian(), self.gains + self.scaled @ moved))

    def _jacobian(self) -> NDArray[np.float64]:
        # I + B (diag q - q q^T) B^T (diag p - p p^T): the product of two positive semidefinite matrices has no
        # negative eigenvalue, so it is never singular.
        spread = (self.scaled * self.columns) @ self.scaled.T - np.outer(self.gains, self.gains)
        return np.asarray(np.eye(len(spread)) + spread * self.rows - np.outer(spread @ self.rows, self.rows))


def _newton(point: _Point, tolerance: float) -> _Point | None:
    """Return the equilibrium near `point`; None when damped steps do not get there."""
    for _ in range(NEWTON_STEPS):
        if np.abs(point.residual).max() < tolerance:
            return point
        direction, worth, size = point.newton(), np.square(point.residual).sum(), 1.0
        while True:
            found = _Point(point.scaled, point.logits - size * direction)
            if np.square(found.residual).sum() < worth:
                break
            size /= 2.0
            if size < SMALLEST_STEP:
                return None
        point = found
    return None


def _softmax(logits: NDArray[np.float64]) -> Mixture:
    values: Mixture = np.exp(logits - logits.max())
    values /= values.sum()
    return values
