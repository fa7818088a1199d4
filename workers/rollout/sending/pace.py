"""Pace: lets a streaming actor play its share of two updates ahead of the learner, so that data stays young."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

AHEAD = 2.0  # updates whose segments may be under way: the one that is being made, and the next
LATELY = 3  # versions; if the queue was not full for longer, the learner lacks data
PATIENCE = 0.4  # share of the time between two versions that other actors may take to bring their share


class Pace:
    """Decides when an actor may collect, by the newest weights here: a newer version means that an update was made.

    If several actors found room for one segment, all would collect, and their segments would wait and grow old. So each
    actor may collect its `share()` of an update's segments for every new version. Before the first version it may
    collect its share of AHEAD updates, at least one segment. An actor may collect out of turn in two cases. The learner
    lacks data: its queue has not been full LATELY. Or there has been room for long, because another actor is slow or
    gone, or weights were lost or are published seldom; so no actor waits for weights that do not come. Segments
    collected out of turn count against the actor's share, up to its share in AHEAD updates.

    Safe to use from two threads.
    """

    def __init__(self, share: Callable[[], float], clock: Callable[[], float] = time.monotonic) -> None:
        """`share`: segments of this actor in an update; `clock` in s."""
        self._share, self._clock = share, clock
        self._lock = threading.Lock()
        self._version: int | None = None
        self._seen_at = self._between = 0.0  # s: when the newest version was seen, and from one version to the next
        self._full_at = 0.0  # s: when there was no room last
        self._full_in: int | None = None  # the newest version at that time
        self._left = 0.0  # segments that it may still collect; below 0: collected out of turn

    def collected(self, version: int) -> None:
        """Count a segment that is on its way; the newest weights here are of `version`."""
        with self._lock:
            self._see(version)
            self._left = max(self._left - 1, -self._most())

    def in_turn(self, version: int) -> bool:
        """Return whether it is this actor's turn to collect; the newest weights here are of `version`."""
        with self._lock:
            self._see(version)
            if self._full_in is not None and version > self._full_in + LATELY:
                return True
            return self._left > 1 - 1e-6  # shares of a third add up to less than 1

    def may_collect(self, version: int, room: bool) -> bool:
        """Return whether there is `room` for a segment and it is this actor's turn or others are late."""
        if not room:
            self.full(version)
            return False
        if self.in_turn(version):
            return True
        with self._lock:
            return self._clock() - max(self._seen_at, self._full_at) >= PATIENCE * self._between

    def full(self, version: int) -> None:
        """Note that there is no room."""
        with self._lock:
            self._see(version)
            self._full_at, self._full_in = self._clock(), version

    def _see(self, version: int) -> None:
        now = self._clock()
        if self._version is None:
            self._left, self._full_in = max(1.0, AHEAD * self._share()), version
        elif version > self._version:
            newer = version - self._version
            self._left = min(self._left + self._share() * newer, self._most())
            self._between = (now - self._seen_at) / newer
        else:
            return
        self._version, self._seen_at = version, now

    def _most(self) -> float:
        return AHEAD * max(1.0, self._share())
