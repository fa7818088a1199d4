"""PSRO: the opponent is drawn from the Nash mixture, or another meta-strategy, of all frozen players.

Source: Lanctot et al. 2017, "A Unified Game-Theoretic Approach to Multiagent Reinforcement Learning".
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from league.empirical_game.solvers import META_SOLVERS, antisymmetric
from league.matchmaking.base import KINDS, Branch, Candidates, Kind, only, rivals_of, weighted
from league.matchmaking.view import Player, Roster, View
from league.rules.win_rates import Slots
from warren.errors import unknown_name

# Solved meta-games by the roster they belong to: a roster is replaced when anyone joins, so entries go with it.
_solved: weakref.WeakKeyDictionary[Roster, dict[tuple[str, bytes], tuple[int, NDArray[np.float64]]]]
_solved = weakref.WeakKeyDictionary()


def meta_strategy(view: View, slots: Slots, solver: str, refresh: int) -> NDArray[np.float64]:
    """The meta-solver's distribution over `slots` (n,), solved anew after `refresh` more matches were counted."""
    cache = _solved.setdefault(view.roster, {})
    key = (solver, slots.tobytes())
    found = cache.get(key)
    if found is None or not found[0] <= view.counted < found[0] + refresh:
        found = cache[key] = (view.counted, META_SOLVERS[solver](antisymmetric(view.matrix(slots))))
    return found[1]


@KINDS.register("psro")
@dataclass(frozen=True)
class Psro(Kind):
    """The Nash mixture of all frozen players, or another meta-solver's; itself with `self_share`."""

    solver: str = "nash"
    refresh: int = 100  # counted matches until the meta-game is solved anew
    self_share: float = 0.0
    uniform_share: float = 0.0  # keeps cells of the payoff known that the mixture never visits

    def branches(self, view: View, me: Player) -> Iterator[Branch]:
        rivals = rivals_of(view, me)
        mixed = partial(meta_strategy, view, rivals, self.solver, self.refresh)
        yield Branch("self_play", self.self_share, lambda: only(me.slot))
        yield Branch("uniform", self.uniform_share, lambda: weighted(rivals, np.ones(len(rivals))))
        yield Branch("meta", 1.0 - self.self_share - self.uniform_share, lambda: Candidates(rivals, mixed()))

    def problems(self) -> list[str]:
        wrong = [] if self.solver in META_SOLVERS else [unknown_name("meta-solver", self.solver, META_SOLVERS)]
        if not 0.0 <= self.self_share + self.uniform_share <= 1.0 or min(self.self_share, self.uniform_share) < 0.0:
            wrong.append(f"self_share={self.self_share}, uniform_share={self.uniform_share}: need shares within 1")
        return wrong + ([] if self.refresh > 0 else [f"refresh={self.refresh} is not positive"])
