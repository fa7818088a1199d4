"""Players that take one side of a game alone, such as attacker or defender, and the players that they may meet.

The option `side` of a player's kind is the number of its team. A player with this option sees only the part of the
league that may sit across from it; its kind chooses among these players as usual.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from league.matchmaking.view import EmpiricalGame, Player, Roster, View
from league.rules.plateau import Look
from league.rules.win_rates import Slots

SIDE = "side"


def side_of(player: Player) -> int | None:
    """Return the side that a player takes in each game; None: every side in turn."""
    side: int | None = player.config.get(SIDE)
    return side


def facing(view: View, me: Player, place: int = 0, teams: int = 2) -> View:
    """Return the league as `me` sees it when it looks for an opponent at `place` in a game of `teams` teams.

    `place` 0: at any place. A `me` that takes every side sees the whole league.
    """
    mine = side_of(me)
    return view if mine is None else Facing(view, mine, (mine + place) % teams if place else None)


class Facing:
    """A View of the players that take `side`; if that is None, of all players that do not take `mine`."""

    def __init__(self, view: View, mine: int, side: int | None) -> None:
        self._view, self._mine, self._side = view, mine, side

    @property
    def roster(self) -> Roster:
        """Return the players that may be met."""
        return self._view.roster.part((SIDE, self._mine, self._side), self._may_be_met)

    @property
    def empirical_game(self) -> EmpiricalGame:
        """See View."""
        return self._view.empirical_game

    @property
    def counted(self) -> int:
        """See View."""
        return self._view.counted

    def win_rates(self, home: int, away: Slots) -> NDArray[np.float64]:
        """See View."""
        return self._view.win_rates(home, away)

    def games(self, home: int, away: Slots) -> NDArray[np.float64]:
        """See View."""
        return self._view.games(home, away)

    def matrix(self, slots: Slots) -> NDArray[np.float64]:
        """See View."""
        return self._view.matrix(slots)

    def elo(self, slots: Slots) -> NDArray[np.float64]:
        """See View."""
        return self._view.elo(slots)

    def looks(self, me: Player) -> Sequence[Look]:
        """See View."""
        return self._view.looks(me)

    def _may_be_met(self, player: Player) -> bool:
        side = side_of(player)
        return side != self._mine if self._side is None else side == self._side
