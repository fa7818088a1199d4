"""Classical phantom games, whose players try again after running into a stone: 20 billion histories in seconds.

Two private histories belong to one game if each player ran into exactly those stones, among the cells that it tried,
that were there by then. Given the orders of both players' stones, the cells that one player ran into depend only on the
other's stones, not on the cells that the other ran into. So for each pair of numbers of stones the payoff matrix is a
product of three sparse matrices: from a player's signatures to its stones beside the opponent's; pair by pair; and
back.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from envs.large.phantom_histories import DIGIT, Payoffs, PhantomRules, States, orders_of_stones


@dataclass(frozen=True)
class _Ends:
    """Games that end with given numbers of stones, all won by one player."""

    stones: tuple[int, int]
    sign: float  # player 0's return
    place: tuple[np.ndarray, np.ndarray]  # int32 [pairs] each: indices into the player's expanded signatures


class ClassicalPayoffs(Payoffs):
    """A signature is the order of the stones and, for every other cell, how many stones the other player had when it
    was run into there. In which order that happened between two stones does not matter to the other player.
    """

    def __init__(self, rules: PhantomRules) -> None:
        super().__init__(rules)
        self._cells = rules.cells
        # By player and number of stones k: a signature is offset + seen * orders + order, where `order` is the rank of
        # the order of the stones and `seen` has a digit in `base` for each other cell, 0 if it was never run into.
        self._signatures: list[dict[int, tuple[int, int, int]]] = [{}, {}]
        for player, known in enumerate(self._signatures):
            orders = 1
            for k in range(1, rules.most(player) + 1):
                orders *= rules.cells - k + 1
                base = k + player  # from 0 to the opponent's number of stones before the player's k-th
                known[k] = self.sizes[player], orders, base
                self.sizes[player] += orders * base ** (rules.cells - k)
        self._ends = [ends for k in range(1, rules.most(0) + 1) for j in (k - 1, k) if (ends := _ends(rules, k, j))]

    def possible(self, player: int, states: States, tries: int) -> np.ndarray:
        """Return whether the opponent may have as many stones as it has at that time, bool [M]."""
        stones = self.rules.stones[states.own].astype(np.int64)
        going = np.asarray(2 * stones + player < self._cells)
        rest = states[going]
        going[going] = self.hidden[player][stones[going] + player, rest.seen, rest.own | rest.seen]
        return going

    def signatures(self, player: int, states: States, tries: int, moves: np.ndarray) -> np.ndarray:
        """Return signatures int32 [1, M, width] of the turns that end with a stone on each of `moves`."""
        rank, when, used, placed = (np.zeros(len(moves), np.int64) for _ in range(4))
        for cell, own in states.history(tries):
            place = cell - self.rules.stones[used & ((1 << cell) - 1)]
            rank = np.where(own, rank * (self._cells - placed) + place, rank)
            when = np.where(own, when, when | (placed + player) << (DIGIT * cell))
            used = np.where(own, used | 1 << cell, used)
            placed = placed + own
        offset, orders, base = np.array([(0, 0, 0), *self._signatures[player].values()])[placed + 1].T[:, :, None]
        below = self.rules.stones[used[:, None] & ((1 << moves) - 1)]
        rank = rank[:, None] * (self._cells - placed)[:, None] + moves - below
        code = np.zeros_like(moves)
        for other in range(self._cells):
            empty = (used[:, None] >> other & 1 == 0) & (moves != other)
            code = np.where(empty, code * base + (when[:, None] >> (DIGIT * other) & 15), code)
        return np.asarray(offset + code * orders + rank, np.int32)[None]

    def against(self, player: int, weights: np.ndarray) -> np.ndarray:
        """Return the earnings of `player` for each signature, float64, given the opponent's `weights` of signatures."""
        found = np.zeros(self.sizes[player])
        other = 1 - player
        for ends in self._ends:
            k, j = ends.stones[player], ends.stones[other]
            pairs = self._expanded(other, j, k, weights)[ends.place[other]]
            if k == 0:
                continue  # the player made no choice that could differ
            offset, orders, base = self._signatures[player][k]
            size = orders * (1 + j) ** (self._cells - k)
            sign = ends.sign * (1 - 2 * player)
            earned = np.bincount(ends.place[player], weights=pairs, minlength=size) * sign
            collected = _collected(earned, orders, base, self._cells - k, j)
            found[offset : offset + len(collected)] += collected
        return found

    def _expanded(self, player: int, k: int, j: int, weights: np.ndarray) -> np.ndarray:
        """Return the weight of k stones of `player` in their order, beside j of the opponent's in theirs."""
        if k == 0:
            return np.ones((1 + j) ** self._cells)
        offset, orders, base = self._signatures[player][k]
        here = weights[offset : offset + orders * base ** (self._cells - k)]
        return _expanded(here, orders, base, self._cells - k, j)


def _expanded(weights: np.ndarray, orders: int, base: int, others: int, stones: int) -> np.ndarray:
    """Expand weights of signatures, [base ** others * orders], to [(1 + stones) ** others * orders].

    A cell with the opponent's m-th stone may have been run into when m stones or more were there, or never; a cell
    without an opponent's stone was never run into.
    """
    done = 1
    for left in range(others - 1, -1, -1):
        digits = weights.reshape(done, base, base**left * orders)
        out = np.empty((done, 1 + stones, base**left * orders))
        out[:, 0] = digits[:, 0]
        tail = digits[:, 0].copy()
        for stone in range(stones, 0, -1):
            if stone < base:
                tail += digits[:, stone]
            out[:, stone] = tail
        weights, done = out, done * (1 + stones)
    return weights.reshape(-1)


def _collected(earned: np.ndarray, orders: int, base: int, others: int, stones: int) -> np.ndarray:
    """Return the transpose of _expanded applied to `earned`."""
    done = 1
    for left in range(others - 1, -1, -1):
        rest = (1 + stones) ** left * orders
        there = earned.reshape(done, 1 + stones, rest)
        out = np.empty((done, base, rest))
        total = np.zeros((done, rest))
        for digit in range(1, max(base, 1 + stones)):
            if digit <= stones:
                total += there[:, digit]
            if digit < base:
                out[:, digit] = total
        out[:, 0] = total + there[:, 0]
        earned, done = out, done * base
    return earned.reshape(-1)


def _ends(rules: PhantomRules, first: int, second: int) -> _Ends | None:
    """Return the games that end with `first` and `second` stones, won by the last stone; None if there are none."""
    winner = 0 if first > second else 1
    sets = orders_of_stones(rules, (first, second), winner)
    if not len(sets[0]):
        return None
    place = tuple(_place(rules.cells, sets[player], sets[1 - player]) for player in range(2))
    return _Ends((first, second), 1.0 - 2.0 * winner, (place[0], place[1]))


def _place(cells: int, own: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """Return the index among the expanded signatures of each pair of orders [pairs, k], [pairs, j], int32 [pairs]."""
    rank, code = np.zeros((2, len(own)), np.int64)
    orders = 1
    used = np.zeros(len(own), np.int64)
    for number in range(own.shape[1]):
        cell = own[:, number].astype(np.int64)
        below = sum(((used >> c & 1) & (c < cell)).astype(np.int64) for c in range(cells))
        rank = rank * (cells - number) + cell - below
        orders *= cells - number
        used |= 1 << cell
    for c in range(cells):
        digit = ((theirs == c) * np.arange(1, theirs.shape[1] + 1)).sum(axis=1)
        code = np.where(used >> c & 1, code, code * (1 + theirs.shape[1]) + digit)
    return (code * orders + rank).astype(np.int32)
