"""Seating: chooses the learning player for which each new game is played, by the players' shares of the decisions."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

import numpy as np

from workers.gateway.experience import Experience
from workers.gateway.matches.tables import Seat, SessionTables
from workers.gateway.protocol import Refusal
from workers.leagues.turns import Turns

NO_MATCH = "no match of the league has come yet; try again in a second"
SLOWLY = 0.1  # weight of a new game's length in the running mean


class Seating:
    """The tables of all learning players; a game is given to the player with the fewest decisions for its share.

    A game's length is not known when it begins: the mean length is counted, and corrected at the game's end. Methods
    may be called from any thread.
    """

    def __init__(self, turns: Turns) -> None:
        self._turns, self._lock = turns, threading.Lock()
        self._tables: dict[str, SessionTables] = {}
        self._offered: Sequence[str] = ()
        self._length = 1.0  # mean decisions of a game

    def add(self, tables: SessionTables) -> None:
        """Take a player's tables."""
        with self._lock:
            self._tables[tables.home] = tables

    def offer(self, players: Sequence[str]) -> None:
        """Play for these players from now on; for others only while none of these has a match."""
        with self._lock:
            self._offered = players

    def share(self, shares: Mapping[str, float]) -> None:
        """Allot games by these shares of the decisions from now on."""
        with self._lock:
            self._turns.share(shares)

    @property
    def ready(self) -> bool:
        """Return True while games may begin."""
        with self._lock:
            return any(tables.open for tables in self._tables.values())

    def experiences(self) -> list[Experience]:
        """Return the experience of the players that games may begin for."""
        with self._lock:
            return [tables.experience for tables in self._tables.values() if tables.open]

    def take(self) -> Seat:
        """Return a seat for a game. Raises Refusal 503 if no player has a match."""
        with self._lock:
            ready = [name for name, tables in self._tables.items() if tables.open]
            wanted = [name for name in ready if name in self._offered] or ready
            if wanted:
                name = self._turns.next(wanted)
                if (seat := self._tables[name].take()) is not None:
                    self._turns.had(name, self._length)
                    seat.expected = self._length
                    return seat
        raise Refusal(503, NO_MATCH)

    def leave(self, seat: Seat, returns: np.ndarray | None) -> None:
        """End the game of `seat`; `returns`: see SessionTables.leave."""
        with self._lock:
            self._turns.had(seat.tables.home, seat.decisions - seat.expected)
            self._length += SLOWLY * (max(1.0, seat.decisions) - self._length)
        seat.tables.leave(seat, returns)
