"""The composition of a league's mixture: shares by kind of player, and alpha-rank of its members."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from league.empirical_game.returns import Returns
from league.empirical_game.solvers import alpha_rank
from league.matchmaking.view import Player

RANKED = 10  # members that are named


def frozen_by_kind(players: Sequence[Player]) -> dict[str, int]:
    """Return the number of the frozen `players` of each kind, the largest number first."""
    return dict(Counter(player.kind_shown for player in players).most_common())


def shares_by_kind(players: Sequence[Player], shares: np.ndarray) -> dict[str, float]:
    """Return each kind's share of a mixture [2, n] of `players`, on average over both seats."""
    found = dict.fromkeys(frozen_by_kind(players), 0.0)
    for player, share in zip(players, shares.mean(axis=0).tolist(), strict=True):
        found[player.kind_shown] += share
    return {kind: round(share, 4) for kind, share in found.items()}


def ranking(players: Sequence[Player], shares: np.ndarray, returns: Returns) -> dict[str, float]:
    """Return alpha-rank's shares of the mixture's members, the RANKED highest first, by their mean returns.

    Other players are left out, because only between members are all cells known.
    """
    members = [players[place] for place in np.flatnonzero(shares.max(axis=0) > 0.0).tolist()]
    mean = returns.matrix(np.array([player.slot for player in members], dtype=np.intp))
    payoff = (mean - mean.T) / 2.0
    scale = float(np.abs(payoff).max(initial=0.0))
    ranked = alpha_rank(payoff / scale if scale else payoff)
    first = np.argsort(-ranked, kind="stable")[:RANKED]
    return {members[place].name: round(float(ranked[place]), 4) for place in first.tolist()}
