"""Population-based training: opponents near one's own strength; the weak copy the strong and mutate.

Sources: probabilistic Elo matching and exploit by Elo, Jaderberg et al. 2019 ("Human-level performance in 3D
multiplayer games"); diversity by the positive part of the payoff, Balduzzi et al. 2019.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

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
    """Return the scores that Elo expects of `me` against each of `slots`, (n,)."""
    mine = view.elo(np.array([me.slot], dtype=np.intp))[0]
    return expected_scores(float(mine), view.elo(slots))


@KINDS.register("pbt_elo")
@dataclass(frozen=True)
class PbtElo(Kind):
    """Opponents of the population near the player's own Elo; the weak copy the strong and mutate.

    p is proportional to the normal density of the expected score around 1/2. At the end of a period one fellow is
    drawn; if Elo expects the player to score below `exploit_below` against it, the player takes over its weights.
    """

    takes_a_side: ClassVar[bool] = False

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


def added_by(view: View, one: int, other: int) -> tuple[float, float] | None:
    """Return (mean positive payoff of slot `one`, of `other`) over opponents that both have met; None without any."""
    slots = view.roster.everyone
    met = (view.games(one, slots) > 0.0) & (view.games(other, slots) > 0.0) & (slots != one) & (slots != other)
    pair = np.array([one, other], dtype=np.intp)
    direct = pair if view.games(one, pair)[1] > 0.0 else pair[:0]
    opponents = np.concatenate([slots[met], direct])  # each of the two also counts as an opponent
    if not len(opponents):
        return None
    gains = [np.maximum(2.0 * view.win_rates(slot, opponents) - 1.0, 0.0) for slot in (one, other)]
    for gained, slot in zip(gains, (one, other), strict=True):
        gained[opponents == slot] = 0.0
    return float(gains[0].mean()), float(gains[1].mean())


@KINDS.register("pbt_psro")
@dataclass(frozen=True)
class PbtPsro(Psro):
    """A population that plays the Nash mixture of its rivals; a player that adds little copies the one that adds most.

    What a player adds is the positive part of its payoff (Balduzzi et al. 2019: only what it wins extends the
    gamescape), averaged over these two players and the opponents that both have met. A player that was reset or copied
    another has met few since. A player that adds less than `exploit_below` of what others add takes over the
    weights of the one of these that adds most. The payoff is the win rates of its own matches: a learning player is in
    no evaluator's games.
    """

    exploit_below: float = 0.5

    def period_end(self, view: View, me: Player, steps: int, rng: np.random.Generator) -> Decision:
        decision = super().period_end(view, me, steps, rng)
        above = []
        for slot in fellows_of(view, me).tolist():
            found = added_by(view, me.slot, slot)
            if found is not None and found[0] < self.exploit_below * found[1]:
                above.append((found[1], found[0], slot))
        if not above:
            return decision
        theirs, mine, slot = max(above)
        stronger = view.roster.by_slot[slot].name
        reason = f"adds {mine:.3f} to the league, below {self.exploit_below} of what {stronger} adds ({theirs:.3f})"
        return Decision(decision.snapshot, exploit=stronger, reason=reason)

    def problems(self) -> list[str]:
        wrong = super().problems()
        return wrong + share_problems("exploit_below", self.exploit_below)
