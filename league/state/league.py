"""What every league can do, in memory or in Redis: carry out commands, and be looked at."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from league.matchmaking.view import View
from league.state.commands import Command
from league.state.records import Progress


class League(Protocol):
    """Implemented by league.state.in_memory.MemoryLeague and league.redis.store.Store."""

    def execute(self, command: Command) -> list[str]:
        """Carry out a command in one step; its answer, as text."""

    def view(self, home: str | None = None) -> View:
        """The league as it is now, as a matchmaker of `home` sees it."""

    def progress_of(self, name: str) -> Progress:
        """Where a player is. Raises PlayerError when it does not exist."""

    @property
    def rng(self) -> np.random.Generator:
        """Random numbers of this caller."""
