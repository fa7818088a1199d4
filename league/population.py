"""Matchmakers that look at the population as a whole: PSRO's Nash mixture, and population-based training.

Sources: PSRO, Lanctot et al. 2017; probabilistic Elo matching and exploit by Elo, Jaderberg et al. 2019 ("Human-level
performance in 3D multiplayer games"); diversity by the positive part of the payoff, Balduzzi et al. 2019.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from league.matchmaking import KINDS, Branch, Candidates, Decision, Kind, only, rivals_of, share_problems, weighted
from league.meta import META_SOLVERS, antisymmetric
from league.payoff import Slots
from league.ratings import ELO_SCALE
from league.view import Player, Roster, View
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


def fellows_of(view: View, me: Player) -> Slots:
    """The other learning players of the same kind: the population of `me`."""
    group = view.roster.learning_of({me.kind})
    others: Slots = group[group != me.slot]
    return others


def expected_scores(view: View, me: Player, slots: Slots) -> NDArray[np.float64]:
    """Scores that Elo expects of `me` against each of `slots`, (n,)."""
    mine = view.elo(np.array([me.slot], dtype=np.intp))[0]
    exponent = np.clip((view.elo(slots) - mine) / ELO_SCALE, -300.0, 300.0)
    scores: NDArray[np.float64] = 1.0 / (1.0 + np.power(10.0, exponent))
    return scores


@KINDS.register("pbt_elo")
@dataclass(frozen=True)
class PbtElo(Kind):
    """Opponents of the population near one's own Elo; the weak copy the strong and mutate.

    p proportional to the normal density of the expected score around 1/2. At the end of a period one fellow is drawn;
    a player that Elo expects to score below `exploit_below` against it takes over its weights.
    """

    snapshot_every: int | None = None
    sigma: float = 1.0 / 6.0
    exploit_below: float = 0.3

    def branches(self, view: View, me: Player) -> Iterator[Branch]:
        fellows = fellows_of(view, me)
        rivals = fellows if len(fellows) else rivals_of(view, me)

        def candidates() -> Candidates:
            squares = np.square((expected_scores(view, me, rivals) - 0.5) / self.sigma) / 2.0
            return weighted(rivals, np.exp(squares.min() - squares))

        yield Branch("near_elo", 1.0, candidates)

    def period_end(self, view: View, me: Player, steps: int, rng: np.random.Generator) -> Decision:
        decision = super().period_end(view, me, steps, rng)
        fellows = fellows_of(view, me)
        if not len(fellows):
            return decision
        drawn = fellows[[int(rng.integers(len(fellows)))]]
        expected = float(expected_scores(view, me, drawn)[0])
        if expected >= self.exploit_below:
            return decision
        stronger = view.roster.by_slot[int(drawn[0])].name
        reason = f"expected score {expected:.3f} against {stronger}, below {self.exploit_below}"
        return Decision(decision.snapshot, exploit=stronger, reason=reason)

    def problems(self) -> list[str]:
        wrong = [] if self.sigma > 0.0 else [f"sigma={self.sigma} is not positive"]
        return wrong + share_problems("exploit_below", self.exploit_below)


@KINDS.register("pbt_psro")
@dataclass(frozen=True)
class PbtPsro(Psro):
    """A population that plays the Nash mixture of its rivals; who adds little to the league copies who adds most.

    What a player adds is the positive part of its payoff against all rivals of the population, summed (Balduzzi et al.
    2019: only what it wins extends the gamescape). Below `exploit_below` of the best, it takes over the best's weights.
    """

    exploit_below: float = 0.5

    def period_end(self, view: View, me: Player, steps: int, rng: np.random.Generator) -> Decision:
        decision = super().period_end(view, me, steps, rng)
        population = view.roster.learning_of({me.kind})
        if len(population) < 2:
            return decision
        payoff = antisymmetric(view.matrix(view.roster.everyone))
        added = np.maximum(payoff, 0.0).sum(axis=1)[np.searchsorted(view.roster.everyone, population)]
        mine, best = added[population == me.slot][0], added.max()
        if mine >= self.exploit_below * best:
            return decision
        strongest = view.roster.by_slot[int(population[int(added.argmax())])].name
        reason = f"adds {mine:.3f} to the league, below {self.exploit_below} of what {strongest} adds ({best:.3f})"
        return Decision(decision.snapshot, exploit=strongest, reason=reason)

    def problems(self) -> list[str]:
        wrong = super().problems()
        return wrong + share_problems("exploit_below", self.exploit_below)
