"""Mean returns between frozen players: the payoff that the league's Nash mixture is solved on.

The payoff of rules.win_rates counts wins, draws and losses, and decays, since it guides matchmaking among players that
change. An equilibrium of win rates is not one of the game if the margin matters. In poker a player that wins many small
pots and loses few large ones has a high win rate and a negative return. Exploitability is measured in expected returns,
so the mixture is solved on returns. It is solved for each seat by itself, since a player may be good in one seat and
poor in the other. Frozen players do not change, so nothing decays, and the count, sum and sum of squares of a cell add
up in any order, from any number of evaluators.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from league.empirical_game.confidence import confidence_sequence
from league.empirical_game.least_exploitable import LeastExploitable
from league.empirical_game.mixture import EXACT, GAMES, PAIRS, Mixture, MixtureSettings, mixture_of
from league.rules.win_rates import Slots
from warren.errors import ConfigurationError

Cell = tuple[int, int, float, float, float]  # slot in seat 0, slot in seat 1, games, sum of returns, and of squares

FIELDS = 3  # float64 a cell: games, sum of returns, sum of their squares; returns of the player in seat 0


class Returns:
    """All cells: the row is the slot of the player in seat 0, the column that of the player in seat 1.

    `settings` say how a mixture is made of the cells (`mixture`); the evaluator that plays the games sets them.
    `largest`: the largest absolute return of a game that was recorded or told to `saw`. With the source EXACT a cell is
    added once: later additions to it are ignored. `least_exploitable`: the mixture that the whole game's best responses
    exploit least, where an evaluator has found it.
    """

    least_exploitable: LeastExploitable | None = None

    def __init__(self) -> None:
        self._cells = np.zeros((0, 0, FIELDS))
        self.settings = MixtureSettings()
        self.largest = 0.0
        self.total_games = 0
        self.version = 0  # one more with every addition

    def record(self, first: int, second: int, returns: ArrayLike) -> None:
        """Add games of `first` in seat 0 against `second` in seat 1: `returns` (games,) of `first`.

        With the source PAIRS, `returns` are the means of pairs, and the cell of `second` against `first` gets them
        with the opposite sign.
        """
        values = np.asarray(returns, dtype=np.float64)
        check_finite(first, second, values)
        self.saw(float(np.abs(values).max(initial=0.0)))
        count, total, squares = len(values), float(values.sum()), float(np.square(values).sum())
        cells: list[Cell] = [(first, second, count, total, squares)]
        if self.settings.source == PAIRS:
            cells.append((second, first, count, -total, squares))
        self.add_cells(cells)

    def add(self, first: int, second: int, games: int, total: float, squares: float) -> None:
        """Add games that were summed elsewhere."""
        self.add_cells([(first, second, games, total, squares)])

    def add_cells(self, cells: Sequence[Cell]) -> None:
        """Add games of several cells that were summed elsewhere, all in one step."""
        for first, second, *sums in cells:
            check_finite(first, second, sums)
        for first, second, *sums in cells:
            self._grow(max(first, second) + 1)
            if self.settings.source == EXACT and self._cells[first, second, 0]:
                continue
            self._cells[first, second] += sums
            self.total_games += int(sums[0])
        self.version += 1

    def found(self, mixture: LeastExploitable) -> None:
        """Take `mixture` as the one that best responses exploit least, in place of an earlier one."""
        self.least_exploitable = mixture
        self.version += 1

    def saw(self, largest: float) -> None:
        """Raise the attribute `largest` to that of returns that were seen, if it is larger."""
        self.largest = max(self.largest, largest)

    @property
    def bound(self) -> float:
        """The bound of a game's returns that intervals are computed for: the larger of the settings' and `largest`."""
        return max(self.settings.bound, self.largest)

    def cells(self) -> list[Cell]:
        """Return all cells with games."""
        found = []
        for first, second in np.argwhere(self._cells[..., 0] > 0.0):
            games, total, squares = map(float, self._cells[first, second])
            found.append((int(first), int(second), games, total, squares))
        return found

    def found_by(self) -> str | None:
        """Return the source that the cells seem to come from; None without any.

        This is for leagues saved before the source was kept: counts of games can mislead.
        """
        games, total = self._cells[..., 0], self._cells[..., 1]
        if not games.any():
            return None
        if games.max() == 1.0:
            return EXACT
        mirrored = np.array_equal(games, games.T) and np.array_equal(total, -total.T) and not games.diagonal().any()
        return PAIRS if mirrored else GAMES

    @property
    def known_slots(self) -> int:
        """The number of slots up to the last one that has games."""
        played = self._cells[..., 0] > 0.0
        return int(np.flatnonzero(played.any(axis=0) | played.any(axis=1)).max(initial=-1)) + 1

    def sums(self, slots: Slots) -> NDArray[np.float64]:
        """Return (n, n, 3): games, sum of returns and of their squares, of slots in seat 0 against those in seat 1."""
        return self._of(slots)

    def games(self, slots: Slots) -> NDArray[np.float64]:
        """Return games (or pairs) of each of `slots` in seat 0 (rows) against each in seat 1 (columns), (n, n).

        With the source PAIRS, a player has infinitely many games with itself: neither seating gains on the other.
        """
        return self._of(slots)[..., 0]

    def matrix(self, slots: Slots) -> NDArray[np.float64]:
        """Return mean returns of slots in seat 0 (rows) against each in seat 1 (columns), (n, n); 0 without games."""
        cells = self._of(slots)
        mean: NDArray[np.float64] = cells[..., 1] / np.maximum(cells[..., 0], 1.0)
        return mean

    def errors(self, slots: Slots) -> NDArray[np.float64]:
        """Return the standard error of each mean, (n, n); inf with fewer than two games. See also `interval`."""
        cells = self._of(slots)
        games = np.maximum(cells[..., 0], 2.0)
        variance = np.maximum(cells[..., 2] - np.square(cells[..., 1]) / games, 0.0) / (games - 1.0)
        errors: NDArray[np.float64] = np.where(cells[..., 0] < 2.0, np.inf, np.sqrt(variance / games))
        return errors

    def interval(self, slots: Slots, bound: float, alpha: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return (lower, upper) of each mean, (n, n) each: a confidence sequence for returns within [-bound, bound]."""
        cells = self._of(slots)
        known = np.isinf(cells[..., 0])
        games, total, squares = np.moveaxis(np.where(known[..., None], 0.0, cells), -1, 0)
        lower, upper = confidence_sequence(games, total, squares, bound, alpha)
        return np.where(known, 0.0, lower), np.where(known, 0.0, upper)

    def mixture(self, slots: Slots, played: NDArray[np.bool_] | None = None) -> Mixture:
        """Return the equilibrium of the players at `slots` by these returns and `settings`: see mixture_of."""
        return mixture_of(self, slots, replace(self.settings, bound=self.bound), played)

    def _of(self, slots: Slots) -> NDArray[np.float64]:
        self._grow(int(slots.max(initial=-1)) + 1)
        found: NDArray[np.float64] = self._cells[np.ix_(slots, slots)]
        if self.settings.source == PAIRS:
            found[np.equal.outer(slots, slots)] = np.inf, 0.0, 0.0
        return found

    def _grow(self, slots: int) -> None:
        have = len(self._cells)
        if slots > have:
            cells = np.zeros((max(slots, 2 * have, 8),) * 2 + (FIELDS,))
            cells[:have, :have] = self._cells
            self._cells = cells


def check_finite(first: int, second: int, values: ArrayLike) -> None:
    """Raise ConfigurationError where one of `values` is not finite: it would spoil the cell for good."""
    finite = np.isfinite(values)
    if not finite.all():
        worst = float(np.asarray(values)[~finite][0])
        raise ConfigurationError(
            f"returns of the players at slots {first} and {second}: {worst} is not finite; let the game give finite "
            "rewards (python -m envs.check finds the step that does not)"
        )
