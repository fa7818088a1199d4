"""Shares of learning by how much players contribute to the league's mixture.

earned = Earned({"main": 8, "exploiter": 1}, part=0.5)
earned.follow(slots, parents, returns)      # after players were frozen
earned.shares                               # {"main": 8.3, "exploiter": 0.7}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from league.empirical_game.mixture import BEST_RESPONSES
from league.empirical_game.returns import Returns
from league.empirical_game.solvers import solve_zero_sum
from league.rules.win_rates import Slots

RATE, KEPT = 0.5, 0.8  # exponential weights: a player that always contributes most gets at most exp(2.5) times as much


def losses(
    gains: NDArray[np.float64], members: Sequence[str | None], parents: Sequence[str | None]
) -> dict[str, float]:
    """Return player -> how much more a game the best mixture loses without the player's snapshots; at least 0.

    `gains` (m, n): of each member of the league's equilibrium against each frozen player that a mixture may play.
    `members` (m,) and `parents` (n,) name the players whose snapshots these are. An exploiter's snapshots are among the
    members alone: without them the mixture does not know what it would lose to the exploiter. Where all of `parents`
    are one player, its loss is the largest of `gains`.
    """
    whole, found = max(0.0, solve_zero_sum(gains)[1]), {}
    for name in {one for one in (*members, *parents) if one is not None}:
        others, left = np.array([one != name for one in parents]), np.array([one != name for one in members])
        if not others.any():
            loss = float(gains.max())
        elif not others.all():
            loss = solve_zero_sum(gains[:, others])[1] - whole
        elif left.any():
            unaware = solve_zero_sum(-gains[left].T)[0]
            loss = float((gains @ unaware).max()) - whole
        else:
            loss = float(gains.mean(axis=1).max()) - whole
        found[name] = max(0.0, loss)
    return found


class Earned:
    """Shares of learning of some players: proportional to `updates`, except for the `part` of the sum that is earned.

    If the mixture has to withstand best responses, the earned part is shared out as the mixture is played. Otherwise it
    is divided by updates * exp(merit / 2). Whenever players were frozen, each player's merit is multiplied by 0.8; then
    the mixture's loss without its snapshots, relative to the largest such loss, is added.
    """

    def __init__(self, updates: Mapping[str, float], part: float) -> None:
        self._updates, self._part = dict(updates), part
        self._earned = self._updates  # only the ratios count
        self._merits, self._frozen = dict.fromkeys(updates, 0.0), 0

    @property
    def shares(self) -> dict[str, float]:
        """Return player -> its share, relative to the others'; the shares have the same sum as `updates`."""
        scale = self._part * sum(self._updates.values()) / sum(self._earned.values())
        return {
            name: (1.0 - self._part) * update + scale * self._earned[name] for name, update in self._updates.items()
        }

    def follow(
        self,
        slots: Slots,
        parents: Sequence[str | None],
        returns: Returns,
        played: NDArray[np.bool_] | None = None,
    ) -> bool:
        """Take in the frozen players at `slots` (n,), of `parents` (n,); return whether that may have changed `shares`.

        Of the players that a mixture may play (`played`: see mixture_of), those count that have met all members of the
        equilibrium often enough.
        """
        if returns.settings.against == BEST_RESPONSES:
            if returns.least_exploitable is None:
                return False
            before, shares = self._earned, returns.mixture(slots, played).shares.mean(axis=0)
            self._earned = self._as_played(shares, parents)
            return self._earned != before
        if len(slots) == self._frozen:
            return False
        self._frozen = len(slots)
        self._take_in(slots, parents, returns, returns.settings.playing(len(slots), played))
        self._earned = {
            name: update * float(np.exp(RATE * self._merits[name])) for name, update in self._updates.items()
        }
        return True

    def _as_played(self, shares: NDArray[np.float64], parents: Sequence[str | None]) -> dict[str, float]:
        """Return player -> how often the mixture plays its snapshots; frozen players without a parent earn nothing."""
        found = dict.fromkeys(self._updates, 0.0)
        for parent, share in zip(parents, shares.tolist(), strict=True):
            if parent in found:
                found[parent] += share
        return found if sum(found.values()) > 0.0 else self._updates

    def _take_in(self, slots: Slots, parents: Sequence[str | None], returns: Returns, ours: NDArray[np.bool_]) -> None:
        """Update each player's merit by what an equilibrium between the players would lose without it."""
        members = returns.mixture(slots, ours).members
        games, matrix = returns.games(slots), returns.matrix(slots)
        gains = (matrix - matrix.T)[members] / 2.0  # over both seats
        np.fill_diagonal(games, np.inf)  # a player gains nothing from itself
        met = (np.minimum(games, games.T)[members] >= returns.settings.least).all(axis=0)
        known = np.flatnonzero(met & ours)
        by, against = ([parents[place] for place in places.tolist()] for places in (members, known))
        lost = losses(gains[:, known], by, against) if len(known) else {}
        most = max(lost.values(), default=0.0)
        for name in self._merits:
            self._merits[name] = KEPT * self._merits[name] + (lost.get(name, 0.0) / most if most > 0.0 else 0.0)
