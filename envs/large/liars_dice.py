"""OpenSpiel's liar's dice. Bids are public, so the game is one array over hands for every set of bids made so far."""

from __future__ import annotations

from collections.abc import Generator
from itertools import combinations_with_replacement
from math import factorial, prod

import numpy as np

from envs.large.game import BATCH, LargeGame, Plan, PolicyFunction, ask

SECONDS_A_MILLION = 0.6  # of one core, beside the policies, for a million information states


class LiarsDice(LargeGame):
    """Bids rise, so the set of bids made, as bits, is their history; the player to move is the parity of its size."""

    def __init__(self, name: str, dice: int, sides: int) -> None:
        self._bids, self._sides = 2 * dice * sides, sides
        self._hands = np.array(list(combinations_with_replacement(range(sides), dice)))  # int64 [hands, dice]
        counts = (self._hands[:, :, None] == np.arange(sides)).sum(axis=1)  # dice of each face, per hand
        ways = [factorial(dice) / prod(factorial(int(n)) for n in hand) for hand in counts]
        self._chance = np.array(ways) / sides**dice  # probability of each hand
        # float64 [bids, hands, hands]: the bidder's return when the other player calls; the last face is wild.
        quantity, face = np.divmod(np.arange(self._bids), sides)
        matching = counts[:, face] + np.where(face == sides - 1, 0, counts[:, -1:])
        self._held = np.where(matching.T[:, :, None] + matching.T[:, None, :] > quantity[:, None, None], 1.0, -1.0)
        gib = 6.0 * 8.0 * self.states / 2**30 + 0.5
        super().__init__(name, gib, SECONDS_A_MILLION * self.states / 1e6, self.states / 1e6)

    @property
    def states(self) -> int:
        """Number of information states of both players."""
        return len(self._hands) << self._bids

    def plan(self, player: int, policy: PolicyFunction) -> Generator[None, None, Plan]:
        """Return how likely `player` makes its bids of each set, and calls after them, [2**bids, hands] each."""
        bids, hands = self._bids, len(self._hands)
        reach, calls = np.ones((2, 1 << bids, hands))
        movers = _movers(bids)
        for last in range(-1, bids):
            block = np.arange(1 << last, 2 << last) if last >= 0 else np.zeros(1, np.int64)
            own = block[movers[block] == player]
            for rows in np.array_split(own, max(1, len(own) * hands // BATCH)):
                if len(rows):
                    asked = ask(self.name, policy, *self.observe(player, rows, last)).reshape(len(rows), hands, -1)
                    calls[rows] = reach[rows] * asked[:, :, bids]
                    for bid in range(last + 1, bids):
                        reach[rows + (1 << bid)] = reach[rows] * asked[:, :, bid]
                    yield
            others = block[movers[block] != player]
            for bid in range(last + 1, bids):
                reach[others + (1 << bid)] = reach[others]
        return [reach, calls]

    def observe(self, player: int, rows: np.ndarray, last: int) -> tuple[np.ndarray, np.ndarray]:
        """Return (observations float32 [M * hands, ...], legal bool [M * hands, bids + 1]) after bids up to `last`."""
        hands, dice = self._hands.shape
        observation = np.zeros((len(rows), hands, 2 + dice * self._sides + self._bids + 1), np.float32)
        observation[:, :, player] = 1.0
        held = self._hands[:, :, None] == np.arange(self._sides)
        observation[:, :, 2 : 2 + dice * self._sides] = held.reshape(hands, -1)
        made = rows[:, None] >> np.arange(self._bids) & 1
        observation[:, :, 2 + dice * self._sides : -1] = made[:, None]
        action_mask = np.zeros((len(rows) * hands, self._bids + 1), np.bool_)
        action_mask[:, last + 1 :] = True
        action_mask[:, self._bids] = last >= 0
        return observation.reshape(len(rows) * hands, -1), action_mask

    def best_response(self, player: int, opponent: Plan) -> float:
        """Return the return of the best reply of `player`, computed backwards from the last bid."""
        reach, calls = (part * self._chance for part in opponent)
        bids, movers = self._bids, _movers(self._bids)
        value = np.zeros((1 << bids, len(self._hands)))
        for last in range(bids - 1, -2, -1):
            block = slice(1 << last, 2 << last) if last >= 0 else slice(0, 1)
            own = movers[block] == player
            mine = value[block][own]
            if last >= 0:
                mine = reach[block][own] @ -self._held[last]  # the player calls the other's bid
            best = mine if last >= 0 else np.full_like(mine, -np.inf)
            theirs = calls[block][~own] @ self._held[last] if last >= 0 else value[block][~own]
            for bid in range(last + 1, bids):
                after = value[block.start + (1 << bid) : block.stop + (1 << bid)]
                np.maximum(best, after[own], out=best)
                theirs += after[~own]
            value[block][own], value[block][~own] = best, theirs
        return float(value[0] @ self._chance)


def _movers(bids: int) -> np.ndarray:
    """Return the player to move after each set of bids, int8 [2**bids]."""
    movers = np.zeros(1, np.int8)
    for _ in range(bids):
        movers = np.concatenate([movers, 1 - movers])
    return movers
