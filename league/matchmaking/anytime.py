"""Anytime PSRO: the opponents' mixture learns, without regret, against the best response that trains against it.

PSRO learns a best response (an answer) to an equilibrium between the frozen players. Once the answer has joined them,
the new equilibrium may be more exploitable than the one before. Here the answer learns against a mixture of the frozen
players (the restricted distribution) that changes as well, by multiplicative weights with what each player wins from
the answer. So the mixture tends to the least exploitable one.

Sources: McAleer, Wang, Lanier, Lanctot, Baldi, Sandholm and Fox 2022, "Anytime PSRO for Two-Player Zero-Sum Games"
(arXiv 2201.07700); McAleer, Lanier, Wang, Baldi, Sandholm and Fox 2024, "Toward Optimal Policy Population Growth in
Two-Player Zero-Sum Games" (ICLR; arXiv 2207.06541), which adds a strategy that learns against the answer (SP-PSRO); and
their code, github.com/indylab/sp-psro, grl/rl_apps/psro (separate_reward_measure_phase) and grl/rllib_tools
(MWUSolver). What differs is in docs/league.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf, nan
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from league.empirical_game.multiplicative_weights import multiplicative_weights
from league.matchmaking.base import (
    KINDS,
    Branch,
    Candidates,
    Decision,
    Kind,
    Target,
    in_seat,
    only,
    rivals_of,
    share_problems,
    slot_named,
)
from league.matchmaking.best_response import budget_problems, when_spent
from league.matchmaking.remembered import remembered
from league.matchmaking.view import Player, View
from league.rules.plateau import Look
from league.rules.run_share import Steps
from league.rules.win_rates import Slots


@KINDS.register("anytime_psro")
@dataclass(frozen=True)
class AnytimePsro(Kind):
    """Learn to beat a mixture of the frozen players that learns as well; be frozen after `budget` steps, begin anew.

    At each beginning the mixture is uniform. After each look of an evaluator, `look_games` games against all frozen
    players in equal shares, it moves by `rate` times what each player earned, in points. `strategy` names a learning
    player that is met with the share `strategy_share`.
    """

    begins_frozen: ClassVar[bool] = False
    needs_returns: ClassVar[bool] = True
    counted_in_steps: ClassVar[tuple[str, ...]] = ("snapshot_every", "budget")

    budget: Steps = 100_000
    rate: float = 0.1
    look_games: int = 4096
    strategy: str = ""
    strategy_share: float = 0.1

    def branches(self, view: View, me: Player) -> Iterator[Branch]:
        rivals, share = rivals_of(view, me), 1.0
        if self.strategy:
            share -= self.strategy_share
            slot = slot_named(view, me, self.strategy)
            yield Branch("strategy", self.strategy_share, lambda: only(slot))
        for seat, mixed in enumerate(self.mixture(view, me, rivals)):
            yield Branch(in_seat("meta", seat), share / 2.0, partial(Candidates, rivals, mixed))

    def mixture(self, view: View, me: Player, slots: Slots) -> NDArray[np.float64]:
        """Return the shares of `slots` in each seat (2, n) after the looks at `me` since its last snapshot."""
        looks = view.looks(me)
        key = ("looks", me.name, self.rate, slots.tobytes())
        newest = (len(looks), looks[-1]) if looks else None
        return remembered(view.roster, key, newest, lambda: self._after(looks, slots))

    def _after(self, looks: Sequence[Look], slots: Slots) -> NDArray[np.float64]:
        gains = np.full((2, len(looks), len(slots)), nan)  # per seat, look and slot
        for number, look in enumerate(looks):
            of_me = {slot: means for slot, *means in look.members}
            for place, slot in enumerate(slots.tolist()):
                if slot in of_me:
                    gains[:, number, place] = [nan if mean is None else -mean for mean in of_me[slot]]
        return np.stack([multiplicative_weights(of_seat, self.rate)[-1] for of_seat in gains])

    @property
    def named(self) -> tuple[str, ...]:
        return (self.strategy,) if self.strategy else ()

    @property
    def wants_looks(self) -> bool:
        return True

    def to_beat(self, view: View) -> Target | None:
        slots = view.roster.historical
        alike = np.full((2, len(slots)), 1.0 / max(1, len(slots)))
        return Target(slots, alike, self.look_games, by_member=True) if len(slots) else None

    def period_end(self, view: View, me: Player, steps: int, rng: np.random.Generator) -> Decision:
        return when_spent(steps, self.budget)

    def problems(self) -> list[str]:
        wrong = share_problems("strategy_share", self.strategy_share)
        if not 0.0 < self.rate < inf:
            wrong.append(f"rate={self.rate} must be above 0, and finite")
        if self.look_games < 2:
            wrong.append(f"look_games={self.look_games} must be at least 2")
        return wrong + budget_problems(self, self.budget)
