"""OpenSpiel's goofspiel with secret bids: the winner of a pair of bids does not depend on the point cards.

A standing is what a player knows beside the point cards: its own bids so far, and who won each round. Its information
states in a round are all combinations of an order of the point cards so far with a standing.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from math import comb

import numpy as np

from envs.large.game import BATCH, LargeGame, Plan, PolicyFunction, ask
from warren.progress import shown

OUTCOMES = 3  # outcomes of a round: 0 lost, 1 tied, 2 won
SECONDS_A_MILLION = 1.7  # of one core, beside the policies, for a million information states


@dataclass(frozen=True)
class _Round:
    """A player's S standings before a bid. A move is standing * cards left + rank of the bid among the cards left."""

    bids: np.ndarray  # int8 [S, rounds so far]
    won: np.ndarray  # int8 [S, rounds so far]: OUTCOMES
    parent: np.ndarray  # int64 [S], rising: the move in the previous round that led here

    def left(self, cards: int) -> np.ndarray:
        """Return the cards that the player can bid, rising, int64 [S, cards left]."""
        held = (self.bids[:, :, None] != np.arange(cards)).all(axis=1)
        return np.nonzero(held)[1].reshape(len(self.bids), -1)


class Goofspiel(LargeGame):
    """Goofspiel with `cards` a suit and the point cards in random order; the last round has no choice."""

    def __init__(self, name: str, cards: int, difference: bool) -> None:
        self._cards, self._difference = cards, difference
        self._shown = [_orders(cards, number) for number in range(cards + 1)]  # int8 [orders, number] of point cards
        bids = _orders(cards, cards)
        pairs = np.repeat(bids, len(bids), axis=0), np.tile(bids, (len(bids), 1))  # both players' bids in all rounds
        self._won = np.sign(pairs[0] - pairs[1])  # int8 [pairs, cards]: 1 where player 0 wins a round
        known = [self._standings(pairs[player], self._won * (1 - 2 * player) + 1) for player in range(2)]
        self._rounds, self._moves = [rounds for rounds, _ in known], [moves for _, moves in known]
        gib = (
            0.3 + (5 * 8.0 * len(self._shown[-1]) * (self._moves[0].max() + 1) + len(pairs[0]) * (cards + 50.0)) / 2**30
        )
        super().__init__(name, gib + 0.3, SECONDS_A_MILLION * self.states / 1e6, self.states / 1e6)

    @property
    def states(self) -> int:
        """Number of information states of both players."""
        sizes = [len(known.bids) for known in self._rounds[0]]
        return 2 * sum(len(table) * size for table, size in zip(self._shown[1:], sizes, strict=False))

    def _standings(self, bids: np.ndarray, won: np.ndarray) -> tuple[list[_Round], np.ndarray]:
        """Return a player's rounds, and the last move of each pair, int32 [pairs]."""
        standing, parent = np.zeros(len(bids), np.int64), np.zeros(1, np.int64)
        one = np.zeros(1, np.int64)  # the index of one pair for each standing
        rounds = []
        for number in range(self._cards - 1):
            rounds.append(_Round(bids[one, :number], won[one, :number], parent))
            lower = (bids[:, :number] < bids[:, number, None]).sum(axis=1)
            move = standing * (self._cards - number) + bids[:, number] - lower
            code, one, standing = np.unique(move * OUTCOMES + won[:, number], return_index=True, return_inverse=True)
            parent = code // OUTCOMES
        return rounds, move.astype(np.int32)

    def plan(self, player: int, policy: PolicyFunction) -> Generator[None, None, Plan]:
        """Return how likely `player` makes each move of the last round with a choice, float64 [orders, moves]."""
        moves = np.ones((1, 1))
        for number, known in enumerate(self._rounds[player]):
            reach = np.repeat(moves[:, known.parent], self._cards - number, axis=0)
            left = known.left(self._cards)
            action_mask = np.zeros((len(left), self._cards), np.bool_)
            action_mask[np.arange(len(left))[:, None], left] = True
            moves = np.empty((*reach.shape, left.shape[1]))
            step = max(1, BATCH // len(self._shown[number + 1]))
            for first in range(0, len(left), step):
                part = slice(first, first + step)
                observation, mask = self._observe(player, number, known, part), action_mask[part]
                mask = np.tile(mask, (len(reach), 1))
                asked = ask(self.name, policy, observation, mask)[mask].reshape(len(reach), -1, left.shape[1])
                moves[:, part] = reach[:, part, None] * asked
                yield
            moves = moves.reshape(len(reach), -1)
        return [moves]

    def _observe(self, player: int, number: int, known: _Round, part: slice) -> np.ndarray:
        """Return the observations of a round, float32 [orders * S, ...]: every order of point cards at S standings."""
        cards, table = self._cards, self._shown[number + 1]
        bids, won = known.bids[part], known.won[part]
        orders, size = len(table), len(bids)
        rounds, some = np.arange(number), np.arange(size)
        worth = (table[:, :number] + 1).astype(np.int64)
        points = [worth @ (won == what).T for what in (2, 0)]  # int64 [orders, S] each, the player's own points first
        totals = np.stack([count[:, :, None] == np.arange(comb(cards + 1, 2) + 1) for count in points], axis=2)
        hand = (bids[:, :, None] != np.arange(cards)).all(axis=1)
        winners = np.zeros((size, cards, 2), np.bool_)
        for seat in range(2):
            winners[:, :number, seat] = won == (2 if player == seat else 0)
        cards_shown, bid = np.zeros((orders, cards, cards), np.bool_), np.zeros((size, cards, cards), np.bool_)
        cards_shown[np.arange(orders)[:, None], np.arange(number + 1), table] = True
        bid[some[:, None], rounds, bids] = True
        seats = np.tile(np.arange(2) == player, 2)  # one-hot: the seat to move, then the seat that observes

        def wide(part: np.ndarray, axis: int) -> np.ndarray:
            return np.broadcast_to(np.expand_dims(part.reshape(len(part), -1), axis), (orders, size, part[0].size))

        columns = (
            np.broadcast_to(seats, (orders, size, 4)),
            totals.reshape(orders, size, -1),
            *(wide(part, 0) for part in (hand, winners)),
            wide(cards_shown, 1),
            wide(bid, 0),
        )
        return np.concatenate(columns, axis=2, dtype=np.float32).reshape(orders * size, -1)

    def best_response(self, player: int, opponent: Plan) -> float:
        """Return the return of the best reply of `player`, computed round by round from the last."""
        orders, sign = self._shown[-1], 1.0 - 2.0 * player
        own, theirs = self._moves[player], self._moves[1 - player]
        won = self._won.astype(np.float32)
        value = np.empty((len(orders), int(own.max()) + 1))
        for number, order in enumerate(shown(orders, "orders of point cards weighed", len(orders))):
            points = won @ (order + 1.0).astype(np.float32)
            earned = points / 2.0 if self._difference else np.sign(points)  # OpenSpiel's: minus the mean
            value[number] = np.bincount(own, earned * opponent[0][number][theirs], value.shape[1])
        value *= sign / len(orders)
        for number in range(self._cards - 2, -1, -1):
            known = self._rounds[player][number]
            best = value.reshape(len(value), len(known.bids), -1).max(axis=2)
            if number == 0:
                return float(best.sum())
            best = best.reshape(-1, self._cards - number, best.shape[1]).sum(axis=1)
            value = np.add.reduceat(best, np.flatnonzero(np.diff(known.parent, prepend=-1)), axis=1)
        raise AssertionError("a game has a round")


def _orders(cards: int, number: int) -> np.ndarray:
    """Return all orders of `number` of the cards, int8 [orders, number]."""
    found = np.zeros((1, 0), np.int8)
    for _ in range(number):
        row, card = np.nonzero((found[:, :, None] != np.arange(cards)).all(axis=1))
        found = np.concatenate([found[row], card[:, None].astype(np.int8)], axis=1)
    return found
