"""The mixture of frozen players: one rule for the score of a league and for the players that train against it."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from league.empirical_game.least_exploitable import LeastExploitable
from league.empirical_game.quantal_response import quantal_response
from league.empirical_game.restricted_game import PLAYED, Places, restricted_game
from league.empirical_game.solvers import solve_zero_sum
from league.rules.win_rates import Slots

GAMES, PAIRS, EXACT = SOURCES = ("games", "pairs", "exact")
PLAYERS, BEST_RESPONSES = OPPONENTS = ("players", "best_responses")  # opponents that a mixture has to withstand
NEWEST = 8  # the newest 1 / NEWEST of the players count as new
REACH = 8.0  # a player may lose so many least temperatures and still be a member: its share is e^-8 of the best's


@dataclass(frozen=True)
class MixtureSettings:
    """Settings of a mixture: how far mean returns are trusted, and others. By default means are taken as exact.

    A cell counts from `least` games on. A player is left out once it gains nothing within the cells' intervals, which
    hold with confidence 1 - `alpha` for returns within [-bound, bound]; with `alpha` None the means decide. The members
    play a quantal response at `temperature` times the mean standard error of their cells, or Nash's mixture where that
    temperature is at most `exact`, in points of a game. `least_temperature`, also in points, is a lower bound of the
    temperature, and makes members of all players that have a share at it, so that nearly equal players are averaged.
    Then the newest eighth is averaged too before it has met the others: see `_with_newest`. `source` says what returns
    are. For PAIRS each is the mean of a deal in both seatings, so it counts for both players' cells, and the mixture is
    the same in both seats. EXACT ones were computed. With `exploiters` False their snapshots are only opponents that
    the mixture has to withstand, and are not played. `against`: the PLAYERS, or the whole game's BEST_RESPONSES, once
    an evaluator has found the mixture that these exploit least; temperatures do not count then.
    """

    least: int = 1
    alpha: float | None = None
    bound: float = 1.0
    temperature: float = 0.0
    exact: float = 0.0
    source: str = GAMES
    least_temperature: float = 0.0
    exploiters: bool = True
    against: str = PLAYERS

    def playing(self, n: int, played: NDArray[np.bool_] | None) -> NDArray[np.bool_]:
        """Return which of n players may have shares, (n,): all with `exploiters` or `played` None, else `played`."""
        return np.ones(n, np.bool_) if self.exploiters or played is None else played


class MeanReturns(Protocol):
    """Mean returns of slots in seat 0 (rows) against slots in seat 1 (columns): league.empirical_game.returns."""

    @property
    def least_exploitable(self) -> LeastExploitable | None: ...

    def games(self, slots: Slots) -> NDArray[np.float64]: ...

    def matrix(self, slots: Slots) -> NDArray[np.float64]: ...

    def errors(self, slots: Slots) -> NDArray[np.float64]: ...

    def interval(self, slots: Slots, bound: float, alpha: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]: ...


class Mixture(NamedTuple):
    """An equilibrium between players, whose places are 0 to n - 1."""

    shares: NDArray[np.float64]  # (2, n), a row per seat: how often members and newest ones are played there
    members: Places  # the players of the equilibrium, including those that are met and not played
    playing: Places  # the members that are played
    undecided: Places  # players outside whose gain is not known yet, since cells are missing
    wanted: list[tuple[int, int]]  # those cells as (place in seat 0, place in seat 1), the ones to play first first
    known: NDArray[np.bool_]  # (n, n): cells with enough games, between players that may have shares


def mixture_of(
    returns: MeanReturns, slots: Slots, settings: MixtureSettings, played: NDArray[np.bool_] | None = None
) -> Mixture:
    """Return the equilibrium of the players at `slots` (n,) on their mean returns so far.

    `played` (n,): all but exploiters (league.matchmaking.mixture_members), used where `settings` exclude exploiters.
    Before any cell is known, the newest player that may be played has the whole share.
    """
    ours = settings.playing(len(slots), played)
    if settings.against == BEST_RESPONSES and (best := returns.least_exploitable) is not None:
        shares = best.of(slots) * ours
        if (shares.sum(axis=1) > 0.0).all():
            return _as_found(shares / shares.sum(axis=1, keepdims=True), best, returns, slots, ours)
    matrix, known = returns.matrix(slots), returns.games(slots) >= settings.least
    slack = np.zeros_like(matrix)
    if settings.alpha is not None:
        lower, upper = returns.interval(slots, settings.bound, settings.alpha)
        slack = np.maximum(upper - matrix, matrix - lower)
    slack += REACH / 2.0 * settings.least_temperature  # halved, as slack counts twice: for a player and for the value
    found = restricted_game(matrix, slack, known, ours)
    shares, members = np.zeros((2, len(slots))), found.members
    playing = members[ours[members]]
    shares[:, playing[:1]] = 1.0
    if len(members) > 1:
        temperature = settings.least_temperature
        if settings.temperature > 0.0:
            errors = returns.errors(slots[members])[ours[members][:, None] | ours[members]]
            temperature = max(temperature, settings.temperature * float(errors.mean()))
        for seat, payoff in enumerate((matrix[np.ix_(playing, members)], -matrix[np.ix_(members, playing)].T)):
            if temperature <= settings.exact:
                shares[seat, playing] = solve_zero_sum(payoff)[0]
            else:
                shares[seat, playing] = quantal_response(payoff, temperature)[0]
    if settings.least_temperature > 0.0:
        shares = _with_newest(shares, np.flatnonzero(ours), found.undecided)
    return Mixture(shares, members, playing, found.undecided, found.wanted, known & ours[:, None] & ours)


def _as_found(
    shares: NDArray[np.float64], best: LeastExploitable, returns: MeanReturns, slots: Slots, ours: NDArray[np.bool_]
) -> Mixture:
    """Return the mixture that an evaluator found; players that joined since are undecided."""
    members = np.flatnonzero(shares.max(axis=0) > PLAYED)
    known = (returns.games(slots) > 0.0) & ours[:, None] & ours
    return Mixture(shares, members, members, np.flatnonzero(ours & ~np.isin(slots, best.slots)), [], known)


def _with_newest(shares: NDArray[np.float64], ours: Places, undecided: Places) -> NDArray[np.float64]:
    """Return `shares` (2, n) with an equal part for each `undecided` player of the newest eighth of `ours`.

    Where players join faster than they meet, cells are known only between old players, which the newest players have
    left behind. The newest differ little from each other, so their average is the best guess.
    """
    newest = ours[len(ours) - ceil(len(ours) / NEWEST) :]
    unmet = np.intersect1d(newest, undecided)
    if not len(unmet):
        return shares
    mixed = shares * (1.0 - len(unmet) / len(newest))
    mixed[:, unmet] += 1.0 / len(newest)
    return mixed
