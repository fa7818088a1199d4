"""Private histories of a phantom game: a player's own tries and their results, which are all that it knows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

DIGIT = 4  # bits of a cell's number, or of a count of stones, in a packed row; so boards have at most 15 cells
CHUNK = 1 << 18  # states expanded at a time, some 100 MB


@dataclass(frozen=True)
class PhantomRules:
    """A board whose players place stones in turn without seeing each other's. A player that tries a taken cell tries
    again."""

    cells: int
    wins: np.ndarray  # bool [2, 2**cells]: whether a set of stones, as bits, has won for its player

    @cached_property
    def stones(self) -> np.ndarray:
        """int8 [2**cells]: number of stones in a set."""
        sets = np.arange(1 << self.cells)
        return np.asarray(np.sum([sets >> cell & 1 for cell in range(self.cells)], axis=0), np.int8)

    def most(self, player: int) -> int:
        """Return the largest number of stones that `player` may have."""
        return (self.cells + 1 - player) // 2

    def hidden(self, player: int) -> np.ndarray:
        """Return whether the opponent may have that many stones, bool [cells + 1, 2**cells (seen), 2**cells (tried)].

        Its stones are those seen and others on cells not tried; sets that have won are excluded.
        """
        size = 1 << self.cells
        possible = np.zeros((self.cells + 1, size, size), np.bool_)
        seen = np.arange(size)
        for stones in np.flatnonzero(~self.wins[1 - player]):
            known = seen[(seen & ~stones) == 0]
            # On the tried cells the opponent has exactly the stones that were seen.
            for tried in known[None, :] | (seen[(seen & stones) == 0])[:, None]:
                possible[self.stones[stones], known, tried] = True
        return possible


@dataclass(frozen=True)
class Level:
    """The information states of one player after `tries` tries, M of them, each with `width` cells left to try."""

    tries: int
    order: np.ndarray  # int64 [M]: cells in the order in which they were tried, DIGIT bits each, the first lowest
    own: np.ndarray  # int16 [M]: the player's stones as bits
    seen: np.ndarray  # int16 [M]: the opponent's stones that it has run into
    entry: np.ndarray  # int32 [M]: the move that led here, in the previous level: row * width + rank among cells left
    signatures: np.ndarray  # int32 [ways, M, width]: those of each move, by its possible results

    @property
    def shape(self) -> tuple[int, int]:
        """Number of states, and number of moves at each."""
        _, rows, width = self.signatures.shape
        return rows, width


class Payoffs(ABC):
    """Player 0's return in all games, bilinear in the total weights of each player's histories with a signature.

    The signature of a history that ends with a move is what matters of it to the other player.
    """

    def __init__(self, rules: PhantomRules) -> None:
        self.rules = rules
        self.hidden = [rules.hidden(player) for player in range(2)]
        self.sizes = [0, 0]  # number of signatures of each player

    @abstractmethod
    def possible(self, player: int, states: States, tries: int) -> np.ndarray:
        """Return whether `player`, whose stones have not won, may have made these tries without an end, bool [M]."""

    @abstractmethod
    def signatures(self, player: int, states: States, tries: int, moves: np.ndarray) -> np.ndarray:
        """Return the signatures of `moves` int64 [M, width] at `states`, int32 [ways, M, width]."""

    @abstractmethod
    def against(self, player: int, weights: np.ndarray) -> np.ndarray:
        """Return the earnings of `player` for each signature, float64, given the opponent's `weights` of signatures."""


@dataclass(frozen=True)
class States:
    """Columns of a level, as in Level."""

    order: np.ndarray
    own: np.ndarray
    seen: np.ndarray
    entry: np.ndarray

    def __getitem__(self, rows: slice | np.ndarray) -> States:
        return States(self.order[rows], self.own[rows], self.seen[rows], self.entry[rows])

    def parts(self) -> Iterator[tuple[int, States]]:
        """Yield (first row, the states of at most CHUNK rows)."""
        for first in range(0, len(self.order), CHUNK):
            yield first, self[first : first + CHUNK]

    def history(self, tries: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield (cell int64 [M], whether a stone was placed there bool [M]) of each try, in their order."""
        for number in range(tries):
            cell = self.order >> (DIGIT * number) & 15
            yield cell, (self.own >> cell & 1).astype(np.bool_)


def levels(payoffs: Payoffs, player: int) -> Iterator[Level]:
    """Yield all information states of `player` at which it moves, by number of tries."""
    cells = payoffs.rules.cells
    states = States(*(np.zeros(1, dtype) for dtype in (np.int64, np.int16, np.int16, np.int32)))
    for tries in range(cells):
        if not len(states.order):
            return
        signatures, grown = [], []
        for first, part in states.parts():
            moves = cells_left(cells, part.own | part.seen, cells - tries).astype(np.int64)
            signatures.append(payoffs.signatures(player, part, tries, moves))
            grown += _grown(payoffs, player, part, tries, first, moves)
        found = np.concatenate(signatures, axis=1)
        yield Level(tries, states.order, states.own, states.seen, states.entry, found)
        columns = ("order", "own", "seen", "entry")
        states = States(*(np.concatenate([getattr(part, name) for part in grown]) for name in columns))


def _grown(payoffs: Payoffs, player: int, part: States, tries: int, first: int, moves: np.ndarray) -> list[States]:
    """Return the states that follow: those after placing a stone, and those after running into one."""
    rows, width = moves.shape
    row, move = np.repeat(np.arange(rows), width), moves.ravel()
    bit = (1 << move).astype(np.int16)
    entry = (first * width + np.arange(len(row))).astype(np.int32)
    order, own, seen = part.order[row] | move << (DIGIT * tries), part.own[row], part.seen[row]
    after = States(order, own | bit, seen, entry), States(order, own, seen | bit, entry)
    after = after[0][~payoffs.rules.wins[player][after[0].own]], after[1]
    return [states[payoffs.possible(player, states, tries + 1)] for states in after]


def cells_left(cells: int, tried: np.ndarray, width: int) -> np.ndarray:
    """Return the cells that are not in the sets `tried` [M], rising, int8 [M, width]."""
    free = (tried[:, None] >> np.arange(cells) & 1) == 0
    return np.nonzero(free)[1].astype(np.int8).reshape(-1, width)


def orders_of_stones(rules: PhantomRules, stones: tuple[int, int], winner: int) -> tuple[np.ndarray, np.ndarray]:
    """Return all orders of each player's stones, int8 [pairs, stones], in which the last stone of `winner` wins."""
    first, total = stones[0], sum(stones)
    order, used = np.zeros((1, 0), np.int8), np.zeros(1, np.int64)
    for number in range(total if total <= rules.cells else 0):
        player = 0 if number < first else 1
        last = number == (first if player == 0 else total) - 1
        row, cell = np.nonzero((used[:, None] >> np.arange(rules.cells) & 1) == 0)
        order = np.concatenate([order[row], cell[:, None].astype(np.int8)], axis=1)
        used = used[row] | 1 << cell
        own = order[:, :first] if player == 0 else order[:, first:]
        sets = np.bitwise_or.reduce(1 << own.astype(np.int64), axis=1)
        keep = rules.wins[player][sets] == (last and player == winner)
        order, used = order[keep], used[keep]
    if order.shape[1] < total or not stones[winner]:
        return np.zeros((0, stones[0]), np.int8), np.zeros((0, stones[1]), np.int8)
    return order[:, :first], order[:, first:]
