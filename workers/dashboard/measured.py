"""Mean returns between frozen players, as evaluators played or computed them, with their intervals.

Frozen players do not change, so a later measurement also holds for every moment at which both were there.
"""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from league.empirical_game.confidence import confidence_sequence
from league.empirical_game.mixture import EXACT, GAMES
from league.empirical_game.returns import Returns
from league.models.snapshots import returns_in
from warren.errors import LeagueError, WarrenError

CONFIDENCE = 0.95  # confidence of intervals, where a run's configuration does not say

Row = dict[str, Any]


class Table:
    """Mean returns between the players at all slots, [n, n] each: the row player's, over both seats; NaN if not known.

    `lower` and `upper` bound a mean with `confidence` at all times. Without a `bound` of a game's return they are NaN,
    too. `found_by`: "games", "pairs" of them on one deal, or "exact".
    """

    def __init__(self, returns: Returns, bound: float | None, confidence: float) -> None:
        slots = np.arange(returns.known_slots, dtype=np.intp)
        cells = returns.sums(slots)
        cells[slots, slots] = 0.0  # a player's games with itself say nothing
        games = cells[..., 0]
        self.found_by, self.confidence = returns.settings.source, confidence
        known = (games > 0.0) & (games.T > 0.0)
        mean = cells[..., 1] / np.maximum(games, 1.0)
        if self.found_by == EXACT:
            low = high = mean
        else:
            low, high = _within(cells, bound, (1.0 - confidence) / (2.0 if self.found_by == GAMES else 1.0))
        over_both = np.stack([mean - mean.T, low - high.T, high - low.T]) / 2.0
        self.mean, self.lower, self.upper = np.where(known, over_both, np.nan)
        shared = 2.0 if self.found_by == GAMES else 1.0  # a pair of games is in both cells
        self.games: NDArray[np.float64] = np.where(known, (games + games.T) * shared / 2.0, 0.0)

    def packed(self) -> Row:
        """Return the table packed: float32 [n, n] each, little-endian, row by row, in base 64."""
        arrays = {name: getattr(self, name) for name in ("mean", "lower", "upper", "games")}
        told = {name: b64encode(array.astype("<f4").tobytes()).decode() for name, array in arrays.items()}
        return {"slots": len(self.mean), "found_by": self.found_by, "confidence": self.confidence, **told}

    def between(self, row: int, column: int) -> Row | None:
        """Return the cell of two slots; None where it is not known."""
        if max(row, column) >= len(self.mean) or np.isnan(self.mean[row, column]):
            return None
        lower, upper = (float(array[row, column]) for array in (self.lower, self.upper))
        return {
            "mean": float(self.mean[row, column]),
            "lower": None if np.isnan(lower) else lower,
            "upper": None if np.isnan(upper) else upper,
            "games": float(self.games[row, column]),
            "found_by": self.found_by,
            "confidence": self.confidence,
        }


def _within(
    cells: NDArray[np.float64], bound: float | None, alpha: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    games, total, squares = np.moveaxis(cells, -1, 0)
    if bound is None and (squares <= games).all():
        bound = 1.0  # the evaluators' bound where a game does not say
    if bound is None:
        return np.full(games.shape, np.nan), np.full(games.shape, np.nan)
    return confidence_sequence(games, total, squares, bound, alpha)


def saved(league: Path) -> Returns:
    """Return the returns in the folder of a league; empty ones if it holds none that can be read."""
    try:
        return returns_in(league)
    except (LeagueError, OSError):
        return Returns()


def terms(settings: Mapping[str, Any]) -> tuple[float | None, float]:
    """Return (the largest return of a game, the confidence of intervals) from a run's configuration.

    Unlike roles, this does not build the league's settings, which would load PyTorch into the dashboard.
    """
    import envs

    league = settings.get("league")
    league = league if isinstance(league, Mapping) else {}
    most, confidence = league.get("max_return"), league.get("cell_confidence")
    if not isinstance(confidence, float) or not 0.0 < confidence < 1.0:
        confidence = CONFIDENCE
    if isinstance(most, int | float) and 0.0 < most < math.inf:
        return float(most), confidence
    try:
        games = envs.make_two_player(str(league.get("env")), 1, 0, **(league.get("env_kwargs") or {}))
    except (WarrenError, ImportError, TypeError):
        return None, confidence
    games.close()
    return games.max_return, confidence
