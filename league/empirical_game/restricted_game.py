"""The part of a league that its equilibrium depends on: which players, and which cells have to be played to know it.

An equilibrium among some players is one of the whole league when no player outside gains against it. To know that, each
player outside has to meet only the players that the equilibrium plays (its support). This is the double oracle method
(McMahan, Gordon and Blum 2003) with the league's players as strategies: about n times the support instead of n^2 cells.
Known cells are kept, so when the support changes, the players that were left out are considered again.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from league.empirical_game.solvers import solve_zero_sum

GAIN = 1e-9  # a smaller gain is rounding of the linear program
PLAYED = 1e-6  # share above which a player is in the support

Places = NDArray[np.intp]


class RestrictedGame(NamedTuple):
    """A solved part of the game; places are those of rows and columns, 0 to n - 1."""

    members: Places  # the players of the equilibrium; all cells between them that matter are known
    mixture: NDArray[np.float64]  # (2, n): Nash's, a row a seat, 0 for players that are not members
    undecided: Places  # players outside whose gain is not known yet, since cells are missing
    wanted: list[tuple[int, int]]  # those cells as (place in seat 0, place in seat 1), the ones to play first first


def restricted_game(
    mean: ArrayLike, slack: ArrayLike, known: ArrayLike, played: ArrayLike | None = None
) -> RestrictedGame:
    """Solve a game of n players as far as its cells are `known` (n, n) bool; rows are players in seat 0.

    `mean` (n, n) holds returns of seat 0, and `slack` (n, n) by how much each may be off; slack 0 takes the means as
    exact. A player is left out only when it would not gain even with all returns off in its favour. The mixture plays
    only players that are `played` (n,) bool, by default all; the others are opponents, and cells between two of them
    are not used.
    """
    means, slacks = np.asarray(mean, np.float64), np.asarray(slack, np.float64)
    n = len(means)
    ours = np.ones(n, np.bool_) if played is None else np.asarray(played, np.bool_)
    met = np.asarray(known, np.bool_) | ~(ours[:, None] | ours)
    if not len(begun := np.flatnonzero(ours & met.diagonal())):
        newest, everyone = np.flatnonzero(ours)[-1:], np.arange(n)  # without any cell, the newest is likely the best
        alone = np.zeros((2, n))
        alone[:, newest] = 1.0
        return RestrictedGame(newest, alone, everyone, [(int(one), int(one)) for one in newest])
    members, left = [int(begun[0])], set[frozenset[int]]()
    while True:
        mixture, against, gains = _solve(means, slacks, ours, members)
        inside = np.isin(np.arange(n), members)
        first, second = np.maximum(mixture, against) > PLAYED
        unmet = ~inside & ~(met[:, second].all(axis=1) & met[first].all(axis=0))
        order = np.lexsort((-np.arange(n), -gains))  # the newest first among equal gains
        rising = [int(j) for j in order if gains[j] > GAIN and not (inside[j] or unmet[j])]
        before = len(members)
        for j in rising:
            if met[j, j] and met[j, members].all() and met[members, j].all():
                members.append(j)
        if len(members) > before:
            continue
        # A new member need not meet members that no longer gain; these come back if they gain again.
        core = [m for m in members if first[m] or second[m] or gains[m] > GAIN]
        part = frozenset([*core, *rising[:1]])
        if rising and len(left) < n and part not in left and not _missing(met, rising[0], core):
            left.add(part)
            members = [*core, rising[0]]
            continue
        wanted = (_missing(met, rising[0], core) or _missing(met, rising[0], members)) if rising else []
        wanted += _of_outsiders(unmet, first, second, met)
        undecided = np.union1d(np.flatnonzero(unmet), np.array(rising, dtype=np.intp))
        return RestrictedGame(np.array(sorted(members)), mixture, undecided, wanted)


def gain_interval(mixture: ArrayLike, lower: ArrayLike, upper: ArrayLike) -> tuple[float, float]:
    """Return (at least, at most) what the players' best answers gain against `mixture` (2, n), in points a game.

    Both are means over both seats, from intervals (n, n) of the returns of seat 0. Others than these players may gain
    more, so the first is a lower bound of the mixture's exploitability as well.
    """
    (first, second), low, high = np.asarray(mixture), np.asarray(lower), np.asarray(upper)
    least = (low @ second).max() - (first @ high).min()
    most = (high @ second).max() - (first @ low).min()
    return max(0.0, float(least) / 2.0), float(most) / 2.0


def _solve(
    means: NDArray[np.float64], slacks: NDArray[np.float64], ours: NDArray[np.bool_], members: list[int]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return the mixture of the members that are `ours` (2, n), all members' mixture against it (2, n), and gains (n,).

    The gain of a player is the most that it may win, in its better seat and role, beyond these mixtures.
    """
    places = np.array(sorted(members))
    playing = places[ours[places]]
    mixture, against = np.zeros((2, len(means))), np.zeros((2, len(means)))
    mixture[0, playing], first_value = solve_zero_sum(means[np.ix_(playing, places)])
    mixture[1, playing], second_value = solve_zero_sum(-means[np.ix_(places, playing)].T)
    if len(playing) == len(places):
        against[:] = mixture
    else:
        against[1, places] = solve_zero_sum(-means[np.ix_(playing, places)].T)[0]
        against[0, places] = solve_zero_sum(means[np.ix_(places, playing)])[0]
    own = max(mixture[0] @ slacks @ against[1], against[0] @ slacks @ mixture[1])
    gains = np.maximum(
        first_value - mixture[0] @ means + mixture[0] @ slacks, means @ mixture[1] + second_value + slacks @ mixture[1]
    )
    as_ours = np.maximum(
        means @ against[1] - first_value + slacks @ against[1],
        -second_value - against[0] @ means + against[0] @ slacks,
    )
    gains[ours] = np.maximum(gains, as_ours)[ours]
    # Members in the support gain nothing by definition; their slack says only that the value is not known exactly.
    return mixture, against, gains + own


def _of_outsiders(
    unmet: NDArray[np.bool_], first: NDArray[np.bool_], second: NDArray[np.bool_], met: NDArray[np.bool_]
) -> list[tuple[int, int]]:
    """Return the cells that `unmet` (n,) players outside lack against the support of each seat, `first`, `second` (n,).

    The newest players are the likeliest to change the equilibrium. But players that have met a part of the support come
    first. Otherwise no cell of a new player would ever be known in a league whose players join faster than they meet.
    """
    missing = {
        int(j): [
            *((int(j), int(k)) for k in np.flatnonzero(second & ~met[j])),
            *((int(k), int(j)) for k in np.flatnonzero(first & ~met[:, j])),
        ]
        for j in np.flatnonzero(unmet)
    }
    whole = int(first.sum() + second.sum())
    order = sorted(missing, key=lambda j: (len(missing[j]) == whole, -j))
    return [cell for j in order for cell in missing[j]]


def _missing(met: NDArray[np.bool_], j: int, others: list[int]) -> list[tuple[int, int]]:
    cells = [(j, j), *((j, other) for other in others), *((other, j) for other in others)]
    return [cell for cell in cells if not met[cell]]
