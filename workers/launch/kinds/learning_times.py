"""Times of learning as a launcher sees them: since the first step, and of the longest update."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from workers.launch.watching.figures import Figures


class LearningClock:
    """A clock that starts at the first step that was learned from: loading and connecting are not training."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._started: float | None = None
        self._first: dict[str, int] = {}

    def poll(self, steps: Mapping[str, int]) -> None:
        """Start when a count of `steps`, by player, grows; the first count of a resumed learner does not count."""
        if self._started is None and any(count > self._first.setdefault(name, count) for name, count in steps.items()):
            self._started = self._clock()

    @property
    def seconds(self) -> float:
        """Return the seconds since the start; 0 before it."""
        return 0.0 if self._started is None else self._clock() - self._started


class UpdateTimes:
    """The longest time of an update, measured between two weight versions in a row."""

    def __init__(self) -> None:
        self._version, self._at, self.longest = -1, 0.0, 0.0

    def poll(self, figures: Figures) -> None:
        """Measure the time since the last version if there is a new one."""
        version, now = figures.get("version", -1), time.monotonic()
        if version != self._version:
            if 0 <= self._version < version:
                self.longest = max(0.9 * self.longest, (now - self._at) / (version - self._version))
            self._version, self._at = version, now
