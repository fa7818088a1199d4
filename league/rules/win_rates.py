"""The payoff: decayed counts of wins, draws and losses of every ordered pair of players.

Source: the payoff class of AlphaStar's published pseudocode (Vinyals et al. 2019). Each game first multiplies the
counts of both ordered pairs by the decay, and then adds itself. So a pair's games saturate at 1 / (1 - decay), and old
games are forgotten as the players change. A cell is three float64: (wins, draws, losses) of the row's player; its
games are their sum, which decays alike. Cells have the same bytes here and in Redis: see league/redis/lua/lib.lua.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

WIN, DRAW, LOSS = "w", "d", "l"  # outcomes for the home player
OUTCOMES = (WIN, DRAW, LOSS)
MIRRORED = {WIN: LOSS, DRAW: DRAW, LOSS: WIN}
SCORES = {WIN: 1.0, DRAW: 0.5, LOSS: 0.0}

CELL = 3  # float64 a cell
CELL_BYTES = 8 * CELL
DECAY = 0.99

Slots = NDArray[np.intp]


def games_of(cells: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the decayed games of `cells` (..., 3), shape (...)."""
    games: NDArray[np.float64] = cells.sum(axis=-1)
    return games


def win_rates_of(cells: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return (wins + draws / 2) / games of `cells` (..., 3), shape (...); 1/2 without games."""
    games = cells.sum(axis=-1)
    points = cells[..., 0] + 0.5 * cells[..., 1]
    # Never above 1: the sum of the three can be rounded to less than the wins alone.
    rates: NDArray[np.float64] = np.full_like(games, 0.5)
    np.divide(points, games, out=rates, where=games > 0.0)
    np.minimum(rates, 1.0, out=rates)
    return rates


def row_from_bytes(data: bytes, slots: int) -> NDArray[np.float64]:
    """Return a payoff row from its bytes in Redis, (slots, 3) float64; cells that were never written are zeros."""
    row = np.zeros((slots, CELL))
    kept = min(len(data) // CELL_BYTES, slots)
    row[:kept] = np.frombuffer(data, dtype="<f8", count=kept * CELL).reshape(kept, CELL)
    return row


class Payoff:
    """All cells, by slot: a player's permanent place in the league."""

    def __init__(self, decay: float = DECAY) -> None:
        if not 0.0 < decay <= 1.0:
            raise ValueError(f"payoff decay {decay} is not in (0, 1]; AlphaStar's is 0.99")
        self.decay = decay
        self._cells = np.zeros((0, 0, CELL))
        self.slots = 0

    @property
    def cells(self) -> NDArray[np.float64]:
        """(slots, slots, 3) float64 (wins, draws, losses) of each row's player; a view, not to be written to."""
        return self._cells[: self.slots, : self.slots]

    def grow(self, slots: int) -> None:
        """Make room for `slots` players; new cells have no games."""
        if slots > len(self._cells):
            room = max(slots, 2 * len(self._cells), 8)
            cells = np.zeros((room, room, CELL))
            cells[: self.slots, : self.slots] = self.cells
            self._cells = cells
        self.slots = max(self.slots, slots)

    def record(self, home: int, away: int, outcomes: Sequence[str]) -> None:
        """Count games of `home` against `away`, oldest first; an outcome is "w", "d" or "l" of home.

        A player against itself both wins and loses a decided game, so half of each is counted: its win rate stays 1/2.
        """
        wins, draws, losses = self._cells[home, away].tolist()  # Python's own floats are faster for three numbers
        decay, alone = self.decay, home == away
        for outcome in outcomes:
            wins, draws, losses = wins * decay, draws * decay, losses * decay
            if outcome == DRAW:
                draws += 1.0
            elif alone:
                wins, losses = wins + 0.5, losses + 0.5
            elif outcome == WIN:
                wins += 1.0
            elif outcome == LOSS:
                losses += 1.0
            else:
                raise ValueError(f"outcome {outcome!r} is not one of {', '.join(OUTCOMES)}")
        self._cells[home, away] = wins, draws, losses
        if not alone:  # the other player's cell always mirrors this one
            self._cells[away, home] = losses, draws, wins

    def clear(self, slot: int) -> None:
        """Forget all games of a player, in its row and in its column."""
        self._cells[slot, :] = 0.0
        self._cells[:, slot] = 0.0

    def copy_player(self, source: int, target: int) -> None:
        """Give `target` the results of `source` against everyone else, as the snapshot of a player inherits them."""
        others = [slot for slot in range(self.slots) if slot not in (source, target)]
        self._cells[target, others] = self._cells[source, others]
        self._cells[others, target] = self._cells[others, source]

    def games(self, home: int, away: Slots) -> NDArray[np.float64]:
        """Return decayed games of `home` against each of `away`, shape of `away`."""
        return games_of(self.cells[home, away])

    def win_rates(self, home: int, away: Slots) -> NDArray[np.float64]:
        """Return win rates of `home` against each of `away`, shape of `away`."""
        return win_rates_of(self.cells[home, away])

    def matrix(self, slots: Slots) -> NDArray[np.float64]:
        """Return win rates of each of `slots` (rows) against each (columns), (n, n)."""
        return win_rates_of(self.cells[np.ix_(slots, slots)])


def outcomes_of(returns: NDArray[np.float64], series: int = 1) -> str:
    """Return "w", "d" or "l" for every `series` games of `returns`, oldest first: won if their sum is positive.

    Games beyond whole series are shared out among these; fewer games than one series make one outcome.
    """
    gains = [part.sum(dtype=np.float64) for part in np.array_split(returns, max(1, len(returns) // series))]
    return "".join(np.array([LOSS, DRAW, WIN])[np.sign(gains).astype(np.int64) + 1])


def placements_of(returns: NDArray[np.float32], series: int = 1) -> str:
    """Return a digit a player for every `series` games of `returns` (games, players), oldest first: its place, from 0.

    A player's place is the number of players that gained more in the series; equal players share a place. Series are
    those of `outcomes_of`.
    """
    parts = np.array_split(returns, max(1, len(returns) // series))
    gains = np.array([part.sum(axis=0, dtype=np.float64) for part in parts])
    return "".join(map(str, (gains[:, None, :] > gains[:, :, None]).sum(axis=2).ravel()))


def pairs_of(outcomes: str, players: int) -> list[tuple[int, int, str]]:
    """Return (one, other, "w", "d" or "l" of one in each game) for each pair of the `players` of a match, by place.

    `outcomes` are those of the home player, or the digits of `placements_of`. Raises ValueError for any other text.
    """
    if players == 2:
        if not outcomes or set(outcomes) - set(OUTCOMES):
            raise ValueError(outcomes)
        return [(0, 1, outcomes)]
    if not outcomes or len(outcomes) % players or not set(outcomes) <= set("0123456789"[:players]):
        raise ValueError(outcomes)
    placed = [outcomes[player::players] for player in range(players)]
    return [(one, other, _compared(placed[one], placed[other])) for one, other in combinations(range(players), 2)]


def _compared(one: str, other: str) -> str:
    """Return "w", "d" or "l" of a player with the places `one` against one with the places `other`."""
    return "".join(WIN if a < b else LOSS if a > b else DRAW for a, b in zip(one, other, strict=True))
