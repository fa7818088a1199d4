"""Private histories of a phantom game: what one player has tried, and with what result, is all that it knows."""

from __future__ import annotations

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
        """bool [most + 1, 2**cells (seen), 2**cells (tried)]: whether the opponent may have that many stones.

        Those seen are among them, the others on cells not tried; a set that has won is none.
        """
        size = 1 << self.cells
        possible = np.zeros((self.most(1 - player) + 1, size, size), np.bool_)
        seen = np.arange(size)
        for stones in np.flatnonzero(~self.wins[1 - player] & (self.stones <= self.most(1 - player))):
            known = seen[(seen & ~stones) == 0]
            # Of the tried cells the opponent has just those that were seen.
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
    signature: np.ndarray  # int32 [M, width]: of its stones, the new one among them, and of what it saw; see signatures

    @property
    def shape(self) -> tuple[int, int]:
        """States, and moves at each."""
        rows, width = self.signature.shape
        return rows, width


def signatures(rules: PhantomRules, player: int) -> list[tuple[int, int, int, int]]:
    """(stones k, offset, orders, base) for every k; a signature is offset + seen * orders + order.

    `order` is the rank of the order in which the k stones were placed; `seen` has a digit for each other cell, how many
    stones the opponent had when it was run into there, 0 for never. What happened between two of its own stones, in
    which order, matters to nobody else.
    """
    found, offset, orders = [], 0, 1
    for k in range(1, rules.most(player) + 1):
        orders *= rules.cells - k + 1
        base = k + player  # from 0 to the opponent's stones before the k-th of one's own
        found.append((k, offset, orders, base))
        offset += orders * base ** (rules.cells - k)
    return found


def levels(rules: PhantomRules, player: int) -> Iterator[Level]:
    """Yield all information states of `player` at which it moves, by number of tries."""
    places = {k: rest for k, *rest in signatures(rules, player)}
    hidden = rules.hidden(player)
    one = np.zeros(1, np.int64)
    state = _States(one, one.astype(np.int16), one.astype(np.int16), one, one, one.astype(np.int32))
    for tries in range(rules.cells):
        if not len(state.order):
            return
        signature = np.concatenate([_signature(rules, player, part, places) for part in state.parts()])
        yield Level(tries, state.order, state.own, state.seen, state.entry, signature)
        parts = zip(state.firsts(), state.parts(), strict=True)
        grown = [_grown(rules, player, part, tries, first, hidden) for first, part in parts]
        state = _States(*(np.concatenate(column) for column in zip(*grown, strict=True)))


@dataclass(frozen=True)
class _States:
    order: np.ndarray
    own: np.ndarray
    seen: np.ndarray
    when: np.ndarray  # int64 [M]: DIGIT bits a cell, the opponent's stones when it was run into there
    rank: np.ndarray  # int64 [M]: of the order of its stones
    entry: np.ndarray

    def firsts(self) -> range:
        return range(0, len(self.order), CHUNK)

    def parts(self) -> Iterator[_States]:
        for first in self.firsts():
            yield _States(*(getattr(self, name)[first : first + CHUNK] for name in self.__dataclass_fields__))


def cells_left(cells: int, tried: np.ndarray, width: int) -> np.ndarray:
    """int8 [M, width]: cells that are not in the sets `tried` [M], rising."""
    free = (tried[:, None] >> np.arange(cells) & 1) == 0
    return np.nonzero(free)[1].astype(np.int8).reshape(-1, width)


def _signature(rules: PhantomRules, player: int, part: _States, places: dict[int, list[int]]) -> np.ndarray:
    cells = rules.cells
    tries = int(rules.stones[part.own[0] | part.seen[0]])
    move = cells_left(cells, part.own | part.seen, cells - tries).astype(np.int64)
    k = rules.stones[part.own].astype(np.int64) + 1
    offset, orders, base = (np.array([0, *(places[n][i] for n in sorted(places))])[k][:, None] for i in range(3))
    below = rules.stones[part.own[:, None] & ((1 << move) - 1)]
    rank = part.rank[:, None] * (cells - k + 1)[:, None] + move - below
    code = np.zeros_like(move)
    for cell in range(cells):
        others = (((part.own >> cell) & 1) == 0)[:, None] & (move != cell)
        digit = (part.when >> (DIGIT * cell) & 15)[:, None]
        code = np.where(others, code * base + digit, code)
    return np.asarray(offset + code * orders + rank, np.int32)


def _grown(
    rules: PhantomRules, player: int, part: _States, tries: int, first: int, hidden: np.ndarray
) -> tuple[np.ndarray, ...]:
    """Return the columns of the states that follow, those after a stone before those after a collision."""
    cells, width = rules.cells, rules.cells - tries
    move = cells_left(cells, part.own | part.seen, width).astype(np.int64).ravel()
    row = np.repeat(np.arange(len(part.order)), width)
    entry = first * width + np.arange(len(row))
    order = part.order[row] | (move << (DIGIT * tries))
    bit = (1 << move).astype(np.int16)
    own, seen = part.own[row], part.seen[row]
    theirs = rules.stones[own].astype(np.int64) + player
    columns = []
    for placed in (True, False):
        mine, known = (own | bit, seen) if placed else (own, seen | bit)
        stones = rules.stones[mine].astype(np.int64)
        there = stones + player  # the opponent's stones at the next decision
        going = (stones + there < cells) & ~rules.wins[player][mine]
        going[going] = hidden[there[going], known[going], (mine | known)[going]]
        if placed:
            below = rules.stones[own & (bit - 1)]
            rank, when = part.rank[row] * (cells - stones + 1) + move - below, part.when[row]
        else:
            rank, when = part.rank[row], part.when[row] | (theirs << (DIGIT * move))
        columns.append([column[going] for column in (order, mine, known, when, rank, entry)])
    return tuple(np.concatenate(pair) for pair in zip(*columns, strict=True))
