"""Private histories of a phantom game: what one player has tried, and with what result, is all that it knows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

DIGIT = 4  # bits of a cell's number, or of a count of stones, in a packed row; so boards have at most 15 cells
CHUNK = 1 << 18  # states expanded at a time: some 100 MB


@dataclass(frozen=True)
class PhantomRules:
    """A board whose players place stones in turn without seeing each other's. Who tries a taken cell tries again."""

    cells: int
    wins: np.ndarray  # bool [2, 2**cells]: whether a set of stones, as bits, has won for the player who owns it

    @cached_property
    def stones(self) -> np.ndarray:
        """int8 [2**cells]: stones of a set."""
        sets = np.arange(1 << self.cells)
        return np.asarray(np.sum([sets >> cell & 1 for cell in range(self.cells)], axis=0), np.int8)

    def most(self, player: int) -> int:
        """Return how many stones `player` has at most."""
        return (self.cells + 1 - player) // 2

    def hidden(self, player: int) -> np.ndarray:
        """bool [cells + 1, 2**cells (seen), 2**cells (tried)]: whether the opponent may have that many stones.

        Those seen are among them, the others on cells not tried; a set that has won is none.
        """
        size = 1 << self.cells
        possible = np.zeros((self.cells + 1, size, size), np.bool_)
        seen = np.arange(size)
        for stones in np.flatnonzero(~self.wins[1 - player]):
            known = seen[(seen & ~stones) == 0]
            # Among the tried cells, the opponent has exactly those that were seen.
            for tried in known[None, :] | (seen[(seen & stones) == 0])[:, None]:
                possible[self.stones[stones], known, tried] = True
        return possible


@dataclass(frozen=True)
class Level:
    """The information states of one player after `tries` tries, M of them, each with `width` cells left to try."""

    tries: int
    order: np.ndarray  # int64 [M]: cells in the order in which they were tried, DIGIT bits each, the first lowest
    own: np.ndarray  # int16 [M]: its stones as bits
    seen: np.ndarray  # int16 [M]: the opponent's that it has run into
    entry: np.ndarray  # int32 [M]: the move that led here, in the level before: row * width + rank among cells left
    signatures: np.ndarray  # int32 [ways, M, width]: of each move, by what may come of it

    @property
    def shape(self) -> tuple[int, int]:
        """States, and moves at each."""
        _, rows, width = self.signatures.shape
        return rows, width


class Payoffs(ABC):
    """Player 0's return in every game, bilinear in what each player's histories of a signature weigh together.

    A signature is what matters to the other player of a history that ends with a move.
    """

    def __init__(self, rules: PhantomRules) -> None:
        self.rules = rules
        self.hidden = [rules.hidden(player) for player in range(2)]
        self.sizes = [0, 0]  # signatures of each player

    @abstractmethod
    def possible(self, player: int, states: States, tries: int) -> np.ndarray:
        """bool [M]: whether `player` can have made these tries without the game being over; its stones have not won."""

    @abstractmethod
    def signatures(self, player: int, states: States, tries: int, moves: np.ndarray) -> np.ndarray:
        """int32 [ways, M, width] of `moves` int64 [M, width] at `states`."""

    @abstractmethod
    def against(self, player: int, weights: np.ndarray) -> np.ndarray:
        """Return what each signature of `player` earns it, float64, against `weights` of the opponent's signatures."""


@dataclass(frozen=True)
class States:
    """Columns of a level; see Level."""

    order: np.ndarray
    own: np.ndarray
    seen: np.ndarray
    entry: np.ndarray

    def __getitem__(self, rows: slice | np.ndarray) -> States:
        return States(self.order[rows], self.own[rows], self.seen[rows], self.entry[rows])

    def parts(self) -> Iterator[tuple[int, States]]:
        """Yield (first row, at most CHUNK rows)."""
        for first in range(0, len(self.order), CHUNK):
            yield first, self[first : first + CHUNK]

    def history(self, tries: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield (cell int64 [M], whether a stone was placed there bool [M]) of each try, the first one first."""
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
    """Return the states that follow, those after a stone and those after running into one."""
    rows, width = moves.shape
    row, move = np.repeat(np.arange(rows), width), moves.ravel()
    bit = (1 << move).astype(np.int16)
    entry = (first * width + np.arange(len(row))).astype(np.int32)
    order, own, seen = part.order[row] | move << (DIGIT * tries), part.own[row], part.seen[row]
    after = States(order, own | bit, seen, entry), States(order, own, seen | bit, entry)
    after = after[0][~payoffs.rules.wins[player][after[0].own]], after[1]
    return [states[payoffs.possible(player, states, tries + 1)] for states in after]


def cells_left(cells: int, tried: np.ndarray, width: int) -> np.ndarray:
    """int8 [M, width]: cells that are not in the sets `tried` [M], rising."""
    free = (tried[:, None] >> np.arange(cells) & 1) == 0
    return np.nonzero(free)[1].astype(np.int8).reshape(-1, width)


def orders_of_stones(rules: PhantomRules, stones: tuple[int, int], winner: int) -> tuple[np.ndarray, np.ndarray]:
    """int8 [pairs, stones] of each player: all orders of its stones where the last one of `winner` wins for it."""
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
