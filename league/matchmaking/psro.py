"""PSRO: the opponent is drawn from the Nash mixture, or another meta-strategy, of all frozen players.

The meta-game is the league's empirical game: mean returns between frozen players, as evaluators play them. Its Nash
mixture is also used to score the league (league.empirical_game.mixture), and an opponent is drawn for the seat that it
takes. A league without evaluators (`evaluators=0`, `evaluation_share=0`) has no such game, and all its players are
played alike.

Source: Lanctot et al. 2017, "A Unified Game-Theoretic Approach to Multiagent Reinforcement Learning".
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from league.empirical_game.mixture import Mixture
from league.empirical_game.restricted_game import Places
from league.empirical_game.solvers import META_SOLVERS
from league.matchmaking.base import KINDS, Branch, Candidates, Kind, in_seat, only, rivals_of, weighted
from league.matchmaking.mixture_members import played
from league.matchmaking.view import EmpiricalGame, Player, Roster, View
from league.rules.win_rates import Slots
from warren.errors import unknown_name

# Solved meta-games by roster: a new roster replaces the old one when a player joins, and these entries go with it.
_solved: weakref.WeakKeyDictionary[Roster, dict[tuple[str, bytes], tuple[int, NDArray[np.float64]]]]
_solved = weakref.WeakKeyDictionary()


def meta_strategy(view: View, slots: Slots, solver: str, refresh: int) -> NDArray[np.float64]:
    """Return the meta-solver's shares of `slots` in each seat (2, n), solved anew after `refresh` more additions."""
    cache = _solved.setdefault(view.roster, {})
    key = (solver, slots.tobytes())
    found, version = cache.get(key), view.empirical_game.version
    if found is None or not found[0] <= version < found[0] + refresh:
        found = cache[key] = (version, solve(view.empirical_game, slots, solver, played(view.roster, slots)))
    return found[1]


def solve(
    game: EmpiricalGame, slots: Slots, solver: str, playing: NDArray[np.bool_] | None = None
) -> NDArray[np.float64]:
    """Return the shares of `slots` in each seat (2, n) that `solver` finds on mean returns; only Nash's differ by seat.

    `playing` (n,): those that are not exploiters; only these have shares if the league's mixture plays no exploiter.
    A player that has not met the support of the equilibrium has a share of 1 / n, as under a uniform mixture; the
    solver shares out the rest. So before any game the shares are uniform. Solvers other than Nash's take in only
    players that have all met each other.
    """
    n = len(slots)
    if solver == "uniform":
        return np.full((2, n), 1.0 / n)
    found = game.mixture(slots, playing)
    met = _met(found) if solver != "nash" else found.playing[:0]
    undecided = np.setdiff1d(found.undecided, met)
    shares = np.zeros((2, n))
    shares[:, undecided] = 1.0 / n
    rest = 1.0 - len(undecided) / n
    if rest <= 0.0:
        return shares
    if solver == "nash":
        shares += rest * found.shares
    else:
        among = game.matrix(slots)[np.ix_(met, met)]
        payoff = (among - among.T) / 2.0
        scale = np.abs(payoff).max()  # points of a game are an arbitrary unit, which these solvers depend on
        shares[:, met] += rest * META_SOLVERS[solver](payoff / scale if scale else payoff)
    return shares


def _met(found: Mixture) -> Places:
    """Return players between which all cells are known, tried in order: those of the equilibrium, then the newest."""
    both = found.known & found.known.T
    fitting, met = both.diagonal().copy(), []
    for place in (*found.playing, *np.flatnonzero(fitting)[::-1]):
        if fitting[place]:
            met.append(place)
            fitting &= both[place]
            fitting[place] = False
    return np.array(sorted(met), dtype=np.intp)


@KINDS.register("psro")
@dataclass(frozen=True)
class Psro(Kind):
    """The Nash mixture of all frozen players, or another meta-solver's; the player itself with `self_share`."""

    needs_returns: ClassVar[bool] = True
    solver: str = "nash"
    refresh: int = 20  # additions of evaluators (batches of games) until the meta-game is solved anew
    self_share: float = 0.0
    uniform_share: float = 0.0  # games against all alike, lest a player outside the mixture can beat this one

    def branches(self, view: View, me: Player) -> Iterator[Branch]:
        rivals = rivals_of(view, me)
        yield Branch("self_play", self.self_share, lambda: only(me.slot))
        yield Branch("uniform", self.uniform_share, lambda: weighted(rivals, np.ones(len(rivals))))
        share = 1.0 - self.self_share - self.uniform_share
        for seat, mixed in enumerate(meta_strategy(view, rivals, self.solver, self.refresh)):
            yield Branch(in_seat("meta", seat), share / 2.0, partial(Candidates, rivals, mixed))

    def problems(self) -> list[str]:
        wrong = [] if self.solver in META_SOLVERS else [unknown_name("meta-solver", self.solver, META_SOLVERS)]
        if not 0.0 <= self.self_share + self.uniform_share <= 1.0 or min(self.self_share, self.uniform_share) < 0.0:
            wrong.append(f"self_share={self.self_share}, uniform_share={self.uniform_share}: need shares within 1")
        return wrong + ([] if self.refresh > 0 else [f"refresh={self.refresh} is not positive"])
