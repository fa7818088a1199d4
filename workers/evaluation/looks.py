"""Looks: games of a learning player's newest weights against its target (league.rules.plateau acts on the results)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from agents.policies import Policy
from league.matchmaking import KINDS, Target, kind_of
from league.matchmaking.view import Player, View
from league.redis.shared_looks import SharedLooks
from league.rules.plateau import Look, Met
from league.rules.win_rates import Slots
from league.state.league_state import LeagueState
from workers.evaluation.cells import Evaluator
from workers.evaluation.duplicate_deals import SEATS, Side, estimate, play_deals


@dataclass(frozen=True)
class Drawing(Side):
    """A side that records the players it has drawn, batch by batch."""

    drawn: list[np.ndarray] = field(default_factory=list)

    def draw(self, seat: int, games: int, generator: torch.Generator) -> np.ndarray:
        """See Side."""
        self.drawn.append(super().draw(seat, games, generator))
        return self.drawn[-1]

    def met(self, found: np.ndarray, slots: Slots) -> tuple[Met, ...]:
        """Return each member's slot and the other side's mean returns against it in seats 0 and 1.

        `found`: the returns of `play_deals`; None in a seat in which the member was not drawn.
        """
        means = []
        for seat in range(SEATS):  # the member's seat: members are the second side, which sits in seat 1 first
            got = found[1 - seat]
            places = np.concatenate(self.drawn[1 - seat :: SEATS])[: len(got)]
            games = np.bincount(places, minlength=len(slots))
            total = np.bincount(places, weights=got, minlength=len(slots))
            means.append([round(float(t / n), 6) if n else None for t, n in zip(total, games, strict=True)])
        return tuple((int(slot), *both) for slot, *both in zip(slots, *means, strict=True))


def look(evaluator: Evaluator, policy: Policy, target: Target, generation: int, steps: int) -> Look:
    """Play `policy` against `target` on duplicate deals; both seats of a deal count as one value of the interval.

    Raises ConfigurationError for a return beyond the bound of the game.
    """
    members = np.flatnonzero(target.shares.max(axis=0) > 0.0)
    policies = [evaluator.policy_of(slot) for slot in target.slots[members].tolist()]
    other, deals = Drawing(policies, target.shares[:, members]), -(-target.games // SEATS)
    found = play_deals(evaluator.games, Side.of(policy), other, deals, evaluator.generator)
    gain = estimate(found.mean(axis=0), evaluator.hold_within(found), 1.0 - evaluator.alpha)
    met = other.met(found, target.slots[members]) if target.by_member else ()
    return Look(generation, steps, SEATS * gain.count, gain.mean, gain.lower, gain.upper, met)


def look_here(evaluator: Evaluator, state: LeagueState, name: str, policy: Policy, steps: int) -> bool:
    """Look at a player of a league in this process; False if its kind wants no looks, or there is no target."""
    player = state.players[name]
    kind = kind_of(player.kind, player.config)
    target = kind.to_beat(state) if kind.wants_looks else None
    if target is not None:
        state.looked.setdefault(name, []).append(look(evaluator, policy, target, player.generation, steps))
    return target is not None


class Looking:
    """The looks of an evaluator at each player whose kind wants them, every `every` decisions of the player.

    `newest` returns (a player's newest policy, the stamp of its weights), None where it has none.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        looks: SharedLooks,
        newest: Callable[[Player], tuple[Policy, Mapping[str, Any]] | None],
        every: int,
    ) -> None:
        self._evaluator, self._looks, self._newest, self._every = evaluator, looks, newest, every

    def look(self, view: View, steps: Callable[[Player], int]) -> bool:
        """Look at one player that is due; False if none is. `steps`: a player's decisions, as the league knows them."""
        for slot in view.roster.learning.tolist():
            player = view.roster.by_slot[slot]
            if player.paused or player.kind not in KINDS:  # of a kind that a person added and only imports elsewhere
                continue
            kind = kind_of(player.kind, player.config)
            if not kind.wants_looks or steps(player) < self._due_at(player, 0):
                continue
            newest, target = self._newest(player), kind.to_beat(view)
            if newest is None or target is None or not self._evaluator.policy_of.able(target.slots).all():
                continue
            policy, stamp = newest
            generation, made = int(stamp.get("generation", 0)), int(stamp["step"])
            # Right after a reset the newest weights are still those from before.
            if generation == player.generation and made >= self._due_at(player, int(stamp.get("schedules_from", 0))):
                self._looks.add(player.name, look(self._evaluator, policy, target, generation, made))
                return True
        return False

    def _due_at(self, player: Player, begun: int) -> int:
        """Return the decisions at which a look at `player`, whose weights began at `begun` decisions, is due."""
        known = [one.steps for one in self._looks.of(player.name) if one.generation == player.generation]
        return max(begun, *known[-1:]) + self._every if known else begun + self._every
