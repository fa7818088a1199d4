"""Games of Connect Four against a tree search, OpenSpiel's MCTS, which no player has trained against."""

from __future__ import annotations

import numpy as np

import envs
from workers.evaluation.duplicate_deals import Side
from workers.leagues.local import LocalLeague

ENV = "openspiel:connect_four"
ROLLOUTS = 10_000  # a move
SLOTS = 50  # games at once


def against_search(league: LocalLeague, games: int, rollouts: int = ROLLOUTS) -> dict[str, float]:
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
        name: score(played, side, tree_search(rollouts, seed), games, seed)
        for name, side in (("search_share", mixture), ("main_search_share", main))
    }
    return {name: round(share, 4) for name, share in found.items()}
