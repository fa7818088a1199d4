"""Counts of repeated events: the first is logged at once, later ones in one line every EVERY seconds."""

from __future__ import annotations

import time
from collections.abc import Callable

EVERY = 10.0  # s between two lines


class Repeats:
    """A count of one kind of event. Not thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._again_at = clock, 0.0
        self.count = 0

    def line(self, text: str) -> str | None:
        """Count an event; return the line to log, with the count from the second on, or None if it is too soon."""
        self.count += 1
        if self.count > 1 and self._clock() < self._again_at:
            return None
        self._again_at = self._clock() + EVERY
        return text if self.count == 1 else f"{text} ({self.count:,} so far)"
