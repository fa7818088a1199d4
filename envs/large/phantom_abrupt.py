"""Abrupt phantom games, in which running into a stone ends the turn: one try per turn, so the players' tries alternate.

A pattern says which of a player's tries placed a stone. Given both patterns and the orders of both players' stones, the
cells that a player ran into depend only on the other's stones; see phantom_classical.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from itertools import permutations
from math import perm

import numpy as np

from envs.large.phantom_histories import Payoffs, PhantomRules, States, orders_of_stones
from warren.progress import shown

Pattern = tuple[bool, ...]  # per try: whether it placed a stone
Limits = tuple[int, ...]  # per try that ran into a stone: the number of the other player's stones by then


class AbruptPayoffs(Payoffs):
    """A signature is the pattern, and the rank of the order of the stones followed by the cells run into."""

    def __init__(self, rules: PhantomRules) -> None:
        super().__init__(rules)
        cells = self._cells = rules.cells
        # Games by (stones of each, winner); a game is a pair of patterns.
        self._games: dict[tuple[tuple[int, int], int], list[tuple[Pattern, Pattern]]] = defaultdict(list)
        for tries in range(1, cells + 1):
            for second in (tries - 1, tries):
                for pair in _pairs(cells, tries, second):
                    stones = sum(pair[0]), sum(pair[1])
                    self._games[stones, int(second == tries)].append(pair)
        self._orders = {key: orders_of_stones(rules, *key) for key in self._games}
        self._offset: list[dict[Pattern, int]] = [{}, {}]
        for key, pairs in self._games.items():
            for pair in pairs if len(self._orders[key][0]) else ():
                for player, pattern in enumerate(pair):
                    if pattern not in self._offset[player]:
                        self._offset[player][pattern] = self.sizes[player]
                        self.sizes[player] += perm(cells, len(pattern))
        self.sizes = [size + 1 for size in self.sizes]  # the last is for histories that belong to no won game

    def possible(self, player: int, states: States, tries: int) -> np.ndarray:
        """Return whether the opponent may have a number of stones that fits when they were run into, bool [M]."""
        pattern = _pattern(states, tries)
        tried = states.own | states.seen
        found = np.zeros(len(tried), np.bool_)
        for code in np.unique(pattern):
            rows = np.flatnonzero(pattern == code)
            for stones in _opponents(tuple(bool(code >> i & 1) for i in range(tries)), player, self._cells):
                found[rows] |= self.hidden[player][stones, states.seen[rows], tried[rows]]
        return found

    def signatures(self, player: int, states: States, tries: int, moves: np.ndarray) -> np.ndarray:
        """Return signatures int32 [2, M, width]: of each of `moves` if it places a stone, and if it runs into one."""
        cells, history = self._cells, list(states.history(tries))
        pattern = _pattern(states, tries)
        found = np.empty((2, *moves.shape), np.int32)
        for way, placed in enumerate((True, False)):
            rank, used, count = np.zeros_like(moves), np.zeros_like(moves), np.zeros_like(moves)
            tried = [(cell[:, None], own[:, None]) for cell, own in history]
            stones = [(cell, own) for cell, own in tried]
            others = [(cell, ~own) for cell, own in tried]
            all_moves = (moves, np.ones((1, 1), np.bool_))
            for cell, taken in [*stones, all_moves, *others] if placed else [*stones, *others, all_moves]:
                place = cell - self.rules.stones[used & ((1 << cell) - 1)]
                rank = np.where(taken, rank * (cells - count) + place, rank)
                used = np.where(taken, used | 1 << cell, used)
                count += taken
            offsets = np.full(1 << tries, -1)
            for code in np.unique(pattern):
                bits = (*(bool(code >> i & 1) for i in range(tries)), placed)
                offsets[code] = self._offset[player].get(bits, -1)
            offset = offsets[pattern][:, None]
            found[way] = np.where(offset < 0, self.sizes[player] - 1, offset + rank)
        return found

    def against(self, player: int, weights: np.ndarray) -> np.ndarray:
        """Return the earnings of `player` for each signature, float64, given the opponent's `weights` of signatures."""
        found, other = np.zeros(self.sizes[player]), 1 - player
        games = [key for key, orders in self._orders.items() if len(orders[0])]
        for stones, winner in shown(games, "numbers of stones weighed", len(games)):
            orders, pairs = self._orders[stones, winner], self._games[stones, winner]
            own = _Ranks(self._cells, orders[player], orders[other])
            theirs = _Ranks(self._cells, orders[other], orders[player])
            sign = 1.0 if winner == player else -1.0
            weigh = cache(lambda pattern, limits, ranks=theirs: self._weigh(other, ranks, pattern, limits, weights))
            for (mine, limits), opposed in self._opposed(player, pairs).items():
                total = sign * np.sum([weigh(*key) for key in opposed], axis=0)
                offset, size = self._offset[player][mine], perm(self._cells, len(mine))
                for rank in own.within(limits):
                    found[offset : offset + size] += np.bincount(rank, total, size)
        return found

    def _weigh(self, player: int, ranks: _Ranks, pattern: Pattern, limits: Limits, weights: np.ndarray) -> np.ndarray:
        """Return the total weight of the histories with `pattern` that fit each pair of orders, float64 [pairs]."""
        here = weights[self._offset[player][pattern] :][: perm(self._cells, len(pattern))]
        total = np.zeros(ranks.pairs)
        for rank in ranks.within(limits):
            total += here[rank]
        return total

    def _opposed(
        self, player: int, pairs: list[tuple[Pattern, Pattern]]
    ) -> dict[tuple[Pattern, Limits], list[tuple[Pattern, Limits]]]:
        """Return pattern and limits of the opponent for each pattern and limits of `player` in `pairs`."""
        found = defaultdict(list)
        for pair in pairs:
            keys = [(pair[p], _limits(pair[p], pair[1 - p], p)) for p in range(2)]
            found[keys[player]].append(keys[1 - player])
        return found


class _Ranks:
    """Ranks of the order of a player's stones [pairs, k] followed by those of the other's that it ran into."""

    def __init__(self, cells: int, own: np.ndarray, theirs: np.ndarray) -> None:
        self._cells, self._theirs = cells, theirs.astype(np.int64)
        self.pairs = len(own)
        self._stones = np.array([bin(stones).count("1") for stones in range(1 << cells)])
        rank, used = np.zeros(len(own), np.int32), np.zeros(len(own), np.int16)
        for number, cell in enumerate(own.astype(np.int64).T):
            rank, used = self._next(rank, used, number, cell)
        self._count = own.shape[1]
        self._known: dict[tuple[int, ...], tuple[np.ndarray, np.ndarray]] = {(): (rank, used)}

    def within(self, limits: Limits) -> Iterator[np.ndarray]:
        """Yield ranks int32 [pairs] for each choice of distinct stones, the i-th one among the first `limits[i]`."""
        for chosen in permutations(range(max(limits, default=0)), len(limits)):
            if all(stone < limit for stone, limit in zip(chosen, limits, strict=True)):
                yield self._rank(chosen)[0]

    def _rank(self, chosen: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        if chosen not in self._known:
            rank, used = self._rank(chosen[:-1])
            cell = self._theirs[:, chosen[-1]]
            self._known[chosen] = self._next(rank, used, self._count + len(chosen) - 1, cell)
        return self._known[chosen]

    def _next(self, rank: np.ndarray, used: np.ndarray, number: int, cell: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        place = cell - self._stones[used & ((1 << cell) - 1)]
        return (rank * (self._cells - number) + place).astype(np.int32), (used | 1 << cell).astype(np.int16)


def _pattern(states: States, tries: int) -> np.ndarray:
    """Return the patterns, int64 [M]: bit i is set if try i placed a stone."""
    found = np.zeros(len(states.order), np.int64)
    for number, (_, own) in enumerate(states.history(tries)):
        found |= own.astype(np.int64) << number
    return found


def _limits(pattern: Pattern, other: Pattern, player: int) -> Limits:
    """Return the other player's number of stones at each try that ran into one; player 0 tries first."""
    return tuple(sum(other[: i + player]) for i, placed in enumerate(pattern) if not placed)


def _fits(limits: Limits) -> bool:
    return all(number < limit for number, limit in enumerate(limits))


def _patterns(cells: int, tries: int, wins: bool) -> list[Pattern]:
    codes = range(1 << tries)
    found = [tuple(bool(code >> i & 1) for i in range(tries)) for code in codes]
    return [pattern for pattern in found if not wins or (tries and pattern[-1])]


def _pairs(cells: int, first: int, second: int) -> Iterator[tuple[Pattern, Pattern]]:
    """Yield all pairs of patterns of `first` and `second` tries that one game may have; the last to try wins."""
    others = defaultdict(list)
    for pattern in _patterns(cells, second, wins=second == first):
        others[sum(pattern)].append(pattern)
    for pattern in _patterns(cells, first, wins=second < first):
        stones = sum(pattern)
        for theirs in range(first - stones, cells - stones + 1):
            for other in others[theirs] if second - theirs <= stones else ():
                if _fits(_limits(pattern, other, 0)) and _fits(_limits(other, pattern, 1)):
                    yield pattern, other


def _opponents(pattern: Pattern, player: int, cells: int) -> list[int]:
    """Return the numbers of stones that the opponent may have at the decision after `pattern`.

    For each number, the stones are taken as placed as early as possible: so both players' collisions are likeliest to
    fit.
    """
    tries, found = len(pattern) + player, []
    for stones in range(min(tries, cells - 1 - sum(pattern)) + 1):
        other = (True,) * stones + (False,) * (tries - stones)
        if _fits(_limits(pattern, other, player)) and _fits(_limits(other, pattern, 1 - player)):
            found.append(stones)
    return found
