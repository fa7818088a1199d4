"""Games of Connect Four against a tree search, OpenSpiel's MCTS, which no player has trained against."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

import envs
from workers.evaluation.duplicate_deals import Side
from workers.leagues.local import LocalLeague

ENV = "openspiel:connect_four"
SLOTS = 50  # games at once
# name of a share -> (rollouts per move, factor of `games`). The large search wins every game against the players of a
# short run; the light one tells them apart.
SEARCHES = {"search_share": (10_000, 1), "light_search_share": (30, 4)}


def against_search(
    league: LocalLeague, games: int, searches: Mapping[str, tuple[int, int]] = SEARCHES
) -> dict[str, float]:
    """Return the shares of the points that the mixture and the main agent win in `games` each; {} for other games.

    A draw is half a point. The main agent plays its likeliest moves; the mixture's players draw theirs.
    """
    if league.config.env != ENV or not games:
        return {}
    from benchmarks.learning.connect_four_players import score, tree_search  # needs OpenSpiel

    slots, shares = league.mixture()
    held = np.flatnonzero(shares.max(axis=0) > 0.0)
    mixture = Side([league.policy_of(slot) for slot in slots[held].tolist()], shares[:, held])
    main = Side([league.trainees["main"].policy], np.ones((2, 1)), greedy=True)
    seed = league.config.seed
    played = envs.make_two_player(ENV, min(SLOTS, max(1, games // 2)), seed)
    found = {
        owner + name: score(played, side, tree_search(rollouts, seed), games * times, seed)
        for name, (rollouts, times) in searches.items()
        for owner, side in (("", mixture), ("main_", main))
    }
    return {name: round(share, 4) for name, share in found.items()}
