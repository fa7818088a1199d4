"""The search for the mixture of players that the whole game's best responses exploit least: cutting planes.

Each step computes the best response to a mixture and adds it to those that the next mixture has to withstand (Kelley
1960). The least loss that a mixture has to all responses so far bounds every mixture's exploitability from below. The
mixture with that loss jumps from corner to corner. Therefore the next best response is computed to a mixture half way
between this one and the best mixture so far (Ben-Ameur and Neto 2007: in-out).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from envs.sequence_form import SequenceForm
from league.empirical_game.least_exploitable import LeastExploitable
from league.empirical_game.solvers import solve_zero_sum

Plans = tuple[np.ndarray, np.ndarray]
CUTS = 160  # responses kept per seat, beside the last one: those that bind a mixture the most
HALF_WAY = 0.5


class Seat:
    """One seat: the players' losses there to best responses in the other seat, and their best mixture so far."""

    def __init__(self, form: SequenceForm, seat: int) -> None:
        self._form, self._seat = form, seat
        self._plans: list[np.ndarray] = []  # by player
        self._responses: list[np.ndarray] = []  # plans of the other seat
        self._gains = np.zeros((0, 0))  # a row for each player, a column for each response
        self.shares = np.zeros(0)  # (n,), of the best mixture so far
        self.loss, self.bound = np.inf, -np.inf  # the best mixture's to a best response; a bound of any mixture's

    def add(self, plans: Sequence[np.ndarray]) -> None:
        """Add players, without a share."""
        gains = np.zeros((len(plans), len(self._responses)))
        for place, response in enumerate(self._responses):
            worth = self._form.worth(self._seat, response)  # computed once for all of them: it is most of the work
            gains[:, place] = [worth @ plan for plan in plans]
        first = not self._plans
        self._gains = np.vstack([self._gains, gains]) if self._responses else gains
        self._plans += plans
        self.shares, self.bound = np.append(self.shares, np.zeros(len(plans))), -np.inf
        if first:
            self.shares[0] = 1.0
            self.loss = self._answer(self.shares)

    def forget(self, place: int) -> None:
        """Leave out a player without a share."""
        del self._plans[place]
        self._gains, self.shares = np.delete(self._gains, place, axis=0), np.delete(self.shares, place)

    def step(self) -> None:
        """Answer the mixture half way from the best so far to the one that loses least to all responses so far."""
        least, value = solve_zero_sum(self._gains)
        self.bound = -value
        # Keep responses that bind this mixture: without them and the answer to come, the next one would be the same.
        if (spare := len(self._responses) - CUTS) > 0:
            kept = np.sort(np.argsort(least @ self._gains, kind="stable")[:-spare])
            self._responses, self._gains = [self._responses[place] for place in kept], self._gains[:, kept]
        tried = (1.0 - HALF_WAY) * self.shares + HALF_WAY * least
        if (loss := self._answer(tried)) < self.loss:
            self.shares, self.loss = tried, loss

    def _answer(self, shares: np.ndarray) -> float:
        """Add the best response to a mixture; return the mixture's loss to it."""
        held = np.flatnonzero(shares)
        loss, response = self._form.best_response(1 - self._seat, sum(shares[k] * self._plans[k] for k in held))
        worth = self._form.worth(self._seat, response)
        self._responses.append(response)
        self._gains = np.column_stack([self._gains, [worth @ plan for plan in self._plans]])
        return float(loss)


class BestResponseSearch:
    """The search among the players at `slots` of one game, with their `best` mixture so far."""

    def __init__(self, form: SequenceForm) -> None:
        self.slots: list[int] = []
        self._seats = Seat(form, 0), Seat(form, 1)

    def __len__(self) -> int:
        return len(self.slots)

    def add(self, players: Mapping[int, Plans]) -> None:
        """Add players: slot -> realisation plans in both seats."""
        if players:
            self.slots += players
            for seat, plans in zip(self._seats, zip(*players.values(), strict=True), strict=True):
                seat.add(plans)

    def keep(self, slots: Collection[int]) -> None:
        """Leave out the players that are neither at `slots` nor have a share."""
        for slot in [slot for slot in self.slots if slot not in slots]:
            place = self.slots.index(slot)
            if not any(seat.shares[place] for seat in self._seats):
                for seat in self._seats:
                    seat.forget(place)
                del self.slots[place]

    def step(self) -> None:
        """Find a better mixture, or a tighter bound on how much better one can be."""
        for seat in self._seats:
            seat.step()

    @property
    def gap(self) -> float:
        """Return the most points per game by which another mixture of these players may be less exploitable."""
        return sum(seat.loss - seat.bound for seat in self._seats) / 2.0

    @property
    def best(self) -> LeastExploitable:
        """Return the best mixture so far."""
        shares, loss = np.stack([seat.shares for seat in self._seats]), sum(seat.loss for seat in self._seats)
        return LeastExploitable(np.array(self.slots, np.intp), shares, loss / 2.0)
