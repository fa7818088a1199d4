"""Population-based training: opponents near one's own strength; the weak copy the strong and mutate.

Sources: probabilistic Elo matching and exploit by Elo, Jaderberg et al. 2019 ("Human-level performance in 3D
multiplayer games"); diversity by the positive part of the payoff, Balduzzi et al. 2019.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from league.empirical_game.solvers import antisymmetric
from league.matchmaking.base import KINDS, Branch, Candidates, Decision, Kind, rivals_of, share_problems, weighted
from league.matchmaking.psro import Psro
from league.matchmaking.view import Player, View
from league.rules.ratings import expected_scores
from league.rules.win_rates import Slots


def fellows_of(view: View, me: Player) -> Slots:
    """Return the other learning players of the same kind: the population of `me`."""
    group = view.roster.learning_of({me.kind})
    others: Slots = group[group != me.slot]
    return others


def expected_scores_of(view: View, me: Player, slots: Slots) -> NDArray[np.float64]:
    """Scores that Elo expects of `me` against each of `slots`, (n,)."""
    mine = view.elo(np.array([me.slot], dtype=np.intp))[0]
    return expected_scores(float(mine), view.elo(slots))


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
            squares = np.square((expected_scores_of(view, me, rivals) - 0.5) / self.sigma) / 2.0
            return weighted(rivals, np.exp(squares.min() - squares))

        yield Branch("near_elo", 1.0, candidates)

    def period_end(self, view: View, me: Player, steps: int, rng: np.random.Generator) -> Decision:
        decision = super().period_end(view, me, steps, rng)
        fellows = fellows_of(view, me)
        if not len(fellows):
            return decision
        drawn = fellows[[int(rng.integers(len(fellows)))]]
        expected = float(expected_scores_of(view, me, drawn)[0])
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
    That payoff is the win rates of its own matches: it still learns, so it is in no evaluator's games.
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
