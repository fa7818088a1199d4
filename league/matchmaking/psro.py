"""PSRO: the opponent is drawn from the Nash mixture, or another meta-strategy, of all frozen players.

The meta-game is the league's empirical game: mean returns between frozen players, as evaluators play them. A league
without evaluators (`evaluators=0`, `evaluation_share=0`) has none, and everybody in it is played alike.

Source: Lanctot et al. 2017, "A Unified Game-Theoretic Approach to Multiagent Reinforcement Learning".
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from league.empirical_game.restricted_game import restricted_game
from league.empirical_game.solvers import META_SOLVERS
from league.matchmaking.base import KINDS, Branch, Candidates, Kind, only, rivals_of, weighted
from league.matchmaking.view import EmpiricalGame, Player, Roster, View
from league.rules.win_rates import Slots
from warren.errors import unknown_name

# Solved meta-games by the roster they belong to: a roster is replaced when anyone joins, so entries go with it.
_solved: weakref.WeakKeyDictionary[Roster, dict[tuple[str, bytes], tuple[int, NDArray[np.float64]]]]
_solved = weakref.WeakKeyDictionary()


def meta_strategy(view: View, slots: Slots, solver: str, refresh: int) -> NDArray[np.float64]:
    """Return the meta-solver's distribution over `slots` (n,), solved anew after `refresh` more additions."""
    cache = _solved.setdefault(view.roster, {})
    key = (solver, slots.tobytes())
    found, version = cache.get(key), view.empirical_game.version
    if found is None or not found[0] <= version < found[0] + refresh:
        found = cache[key] = (version, solve(view.empirical_game, slots, solver))
    return found[1]


def solve(game: EmpiricalGame, slots: Slots, solver: str) -> NDArray[np.float64]:
    """Return the distribution over `slots` (n,) that `solver` finds on mean returns over both seats.

    A player that has not met the support of the equilibrium has a share of 1 / n, as under a uniform mixture; the
    rest is the solver's. So before any game the distribution is uniform.
    """
    n = len(slots)
    mean, met = game.matrix(slots), game.games(slots) > 0.0
    known = restricted_game(mean, np.zeros((n, n)), met)
    shares = np.zeros(n)
    shares[known.undecided] = 1.0 / n
    if len(known.undecided) < n:
        among = mean[np.ix_(known.members, known.members)]
        payoff = (among - among.T) / 2.0
        scale = np.abs(payoff).max()  # solvers other than Nash's depend on it: points of a game are no unit
        shares[known.members] += (1.0 - shares.sum()) * META_SOLVERS[solver](payoff / scale if scale else payoff)
    return shares


@KINDS.register("psro")
@dataclass(frozen=True)
class Psro(Kind):
    """The Nash mixture of all frozen players, or another meta-solver's; itself with `self_share`."""

    solver: str = "nash"
    refresh: int = 20  # additions of evaluators (batches of games) until the meta-game is solved anew
    self_share: float = 0.0
    uniform_share: float = 0.0  # of games against everybody alike: what is no use now may be used against you later

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
