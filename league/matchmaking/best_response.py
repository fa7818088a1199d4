"""Best responses one after another: each learns for a budget against its target, and is frozen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from league.matchmaking.base import KINDS, Branch, Decision, Kind, unheeded_snapshots
from league.matchmaking.psro import Psro
from league.matchmaking.simple import Fixed
from league.matchmaking.view import Player, View
from league.rules.run_share import Steps, amount, reached


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

    How much each response gained is measured by the evaluators' games of its snapshot.
    """

    takes_a_side: ClassVar[bool] = False

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

    def period_end(self, view: View, me: Player, steps: int, rng: np.random.Generator) -> Decision:
        return when_spent(steps, self.budget)

    def problems(self) -> list[str]:
        return super().problems() + budget_problems(self, self.budget)
