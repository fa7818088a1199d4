"""Gains of best responses: what the newest frozen response of each player earns from its target.

gains = Gains(evaluator, error=0.05, most=100_000)
gains.step(view)        # a batch of games, while an interval is wider than that
gains.of(view)          # {"response": Gain(response="response@40", target="main@0", ...)}
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from math import inf
from typing import Any

import numpy as np

from league.empirical_game.confidence import confidence_sequence
from league.matchmaking import Target, kind_of, responses
from league.matchmaking.view import Player, View
from league.rules.gains import Gain
from workers.evaluation.cells import Evaluator
from workers.evaluation.duplicate_deals import SEATS, Side, play_deals
from workers.evaluation.exact_cells import ExactEvaluator
from workers.evaluation.passed_over import UNLOADABLE


class Measurement:
    """The gain of one response from a target that stays as it was when the measurement began.

    An evaluator that computes cells computes the gain. Others play duplicate deals; a member of the target is drawn for
    each game, so the interval is one of the return from the whole mixture, and it holds however often it is computed.
    """

    def __init__(self, evaluator: Evaluator, response: Player, target: Target, named: str) -> None:
        self.response, self._evaluator, self._named = response, evaluator, named
        self.gain: Gain | None = None
        held = np.flatnonzero(target.shares.max(axis=0) > 0.0)
        self._slots, self._shares = target.slots[held], target.shares[:, held]
        self._sums = np.zeros(3)  # deals, returns (the mean of a deal's two seats), squares of these

    def is_able(self) -> bool:
        """Return False if a model that is needed could not be loaded in the last minutes."""
        return bool(self._evaluator.policy_of.able(np.append(self._slots, self.response.slot)).all())

    def extend(self) -> None:
        """Play one more batch of deals, or compute the gain; leave it as it is if a model cannot be loaded.

        Raises ConfigurationError for a return beyond the bound of the game.
        """
        with contextlib.suppress(*UNLOADABLE):  # it has been logged
            if isinstance(self._evaluator, ExactEvaluator):
                exact = self._evaluator.gain_of(self.response.slot, self._slots, self._shares)
                self.gain = Gain(self.response.name, self._named, 0, exact, exact, exact)
            else:
                self.gain = self._played(self._evaluator)

    def _played(self, evaluator: Evaluator) -> Gain:
        members = [evaluator.policy_of(slot) for slot in self._slots.tolist()]
        sides = Side.of(evaluator.policy_of(self.response.slot)), Side(members, self._shares)
        found = play_deals(evaluator.games, *sides, evaluator.games.num_envs, evaluator.generator)
        bound, values = evaluator.hold_within(found), found.mean(axis=0)
        self._sums += len(values), values.sum(), np.square(values).sum()
        deals, total, squares = self._sums.tolist()
        lower, upper = confidence_sequence(deals, total, squares, bound, evaluator.alpha)
        return Gain(self.response.name, self._named, SEATS * int(deals), total / deals, float(lower), float(upper))


class Gains:
    """Gains of the newest frozen response of each player whose kind responds (league.matchmaking.Kind.responds).

    Each is measured until its interval extends at most `error` points to either side, or until `most` games.
    `known`: gains that were measured before, as dicts, by player.
    """

    def __init__(
        self, evaluator: Evaluator, error: float, most: int, known: Mapping[str, Mapping[str, Any]] | None = None
    ) -> None:
        self._evaluator, self._error, self._most, self._known = evaluator, error, most, dict(known or {})
        self._open: dict[str, Measurement] = {}  # by player

    def step(self, view: View) -> bool:
        """Measure the gain with the widest interval by one batch; False if all are known well enough."""
        self._follow(view)
        wanted = [one for one in self._open.values() if self._left(one.gain) and one.is_able()]
        if wanted:
            max(wanted, key=lambda one: self._left(one.gain)).extend()
        return bool(wanted)

    def of(self, view: View) -> dict[str, Gain]:
        """Return player -> the gain of its newest response; where there is no figure yet, play a first batch."""
        self._follow(view)
        for one in self._open.values():
            if one.gain is None and one.is_able():
                one.extend()
        return {name: one.gain for name, one in self._open.items() if one.gain is not None}

    def _follow(self, view: View) -> None:
        """Begin measurements of responses that were frozen since, and end those of earlier ones."""
        before, self._open = self._open, {}
        for name, response in responses(view.roster).items():
            if response is None:
                continue
            held = before.get(name)
            if held is None or held.response.slot != response.slot:
                held = self._begun(view, name, response)
            if held is not None:
                self._open[name] = held

    def _begun(self, view: View, name: str, response: Player) -> Measurement | None:
        target = kind_of(response.kind, view.roster[name].config).gains_from(view, response)
        if target is None:
            return None
        found = Measurement(self._evaluator, response, target, named(view, target))
        known = self._known.pop(name, None)
        if known is not None and known["response"] == response.name:
            found.gain = Gain(**known)
        return found

    def _left(self, gain: Gain | None) -> float:
        """Return half of the interval's width, infinity without one; 0 if the gain is known well enough."""
        if gain is None:
            return inf
        width = (gain.upper - gain.lower) / 2.0
        return width if gain.games and gain.games < self._most and width > self._error else 0.0


def named(view: View, target: Target) -> str:
    """Return the target as people read it: a player's name, or the number of the mixture's players."""
    held = target.slots[target.shares.max(axis=0) > 0.0].tolist()
    return view.roster.by_slot[held[0]].name if len(held) == 1 else f"the mixture of {len(held)} players"
