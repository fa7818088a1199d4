"""Best responses one after another: each learns for a budget against its target, and is frozen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from league.matchmaking.base import KINDS, Branch, Decision, Kind, Target, unheeded_snapshots
from league.matchmaking.mixture_members import played
from league.matchmaking.psro import Psro, solve
from league.matchmaking.simple import Fixed
from league.matchmaking.view import Player, Roster, View
from league.rules.run_share import Steps, amount, reached
from league.rules.win_rates import Slots


def when_spent(steps: int, budget: Steps) -> Decision:
    """Return the decision after `steps` of a best response: once its budget is spent, freeze it and begin another."""
    if not reached(steps, budget):
        return Decision(reason=f"{steps} of {budget} steps of the budget")
    return Decision(snapshot=True, reset=True, reason="the budget is spent")


def budget_problems(kind: Kind, budget: Steps) -> list[str]:
    """Return what is wrong with the options of `kind` that decide when a best response is frozen."""
    wrong = [] if amount(budget) > 0 else [f"budget={budget} must be at least 1 step"]
    return wrong + unheeded_snapshots(kind, "budget")


@KINDS.register("best_response")
@dataclass(frozen=True)
class BestResponse(Psro):
    """Learn to beat `opponent`, or the mixture of all frozen players, for `budget` steps; be frozen, and begin anew.

    How much the newest response gains from the frozen players that joined before it is measured by evaluators.
    """

    takes_a_side: ClassVar[bool] = False

    responds: ClassVar[bool] = True
    begins_frozen: ClassVar[bool] = False
    counted_in_steps: ClassVar[tuple[str, ...]] = ("snapshot_every", "budget")

    opponent: str = ""  # name of a player; "" for the mixture
    budget: Steps = 100_000

    def branches(self, view: View, me: Player) -> Iterator[Branch]:
        if self.opponent:
            yield from Fixed(opponent=self.opponent).branches(view, me)
        else:
            yield from super().branches(view, me)

    @property
    def named(self) -> tuple[str, ...]:
        return (self.opponent,) if self.opponent else ()

    def gains_from(self, view: View, response: Player) -> Target | None:
        """Return `opponent`, if it learns its newest snapshot before `response`, or without an opponent the mixture.

        None if no such player had been frozen before `response` was.
        """
        before = _frozen_before(view.roster, response)
        if not self.opponent and len(before):
            return Target(before, solve(view.empirical_game, before, self.solver, played(view.roster, before)))
        if not self.opponent:
            return None
        own = view.roster[self.opponent]
        slots = before[before == own.slot] if own.frozen else np.intersect1d(before, view.roster.snapshots_of(own.name))
        found = newest(view.roster, slots)
        return None if found is None else Target(np.array([found.slot], dtype=np.intp), np.ones((2, 1)))

    def period_end(self, view: View, me: Player, steps: int, rng: np.random.Generator) -> Decision:
        return when_spent(steps, self.budget)

    def problems(self) -> list[str]:
        return super().problems() + budget_problems(self, self.budget)


def responses(roster: Roster) -> dict[str, Player | None]:
    """Return player -> its newest frozen response, of all players of kinds that respond; None before the first.

    Players of a kind that this process does not know are left out.
    """
    found: dict[str, Player | None] = {}
    for player in roster.present:
        if player.parent is None and player.kind in KINDS and KINDS[player.kind].responds:
            found[player.name] = player if player.frozen else newest(roster, roster.snapshots_of(player.name))
    return found


def newest(roster: Roster, slots: Slots) -> Player | None:
    """Return the newest of the frozen players at `slots` (n,), an average of weights only if there is nothing else."""
    players = [roster.by_slot[slot] for slot in slots.tolist()]
    chosen = [player for player in players if not player.is_average] or players
    return chosen[-1] if chosen else None


def _frozen_before(roster: Roster, response: Player) -> Slots:
    """Return the frozen players that had joined before a snapshot; for a player frozen by hand all others."""
    slots = roster.historical
    return slots[slots < response.slot] if response.parent else slots[slots != response.slot]
