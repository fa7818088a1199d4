"""The interface of a league, in memory or in Redis: it carries out commands and shows its state."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from league.matchmaking.view import View
from league.state.commands import Command
from league.state.records import Progress


class League(Protocol):
    """Implemented by league.state.in_memory.MemoryLeague and league.redis.store.Store."""

    def execute(self, command: Command) -> list[str]:
        """Carry out a command in one step and return its answer, as text."""

    def view(self, home: str | None = None) -> View:
        """Return the league as it is now, as a matchmaker of `home` sees it."""

    def progress_of(self, name: str) -> Progress:
        """Return a player's progress. Raises PlayerError when it does not exist."""

    @property
    def rng(self) -> np.random.Generator:
        """Random numbers for this caller."""
