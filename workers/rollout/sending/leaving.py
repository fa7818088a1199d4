"""Segments that have found room in the learner's queue and are not in it yet: they are on their way."""

from __future__ import annotations

import threading


class Leaving:
    """Counts them, at most one per sending thread. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock, self._own = threading.Lock(), threading.local()
        self._count = 0

    def begin(self) -> bool:
        """Count this thread's segment, which has found room; return False where it is counted already."""
        if self._here():
            return False
        self._own.here = True
        with self._lock:
            self._count += 1
        return True

    def end(self) -> None:
        """Stop counting this thread's segment: it has arrived, or never will."""
        if self._here():
            self._own.here = False
            with self._lock:
                self._count -= 1

    def others(self) -> int:
        """Return how many there are beside this thread's own, which may have to be sent again."""
        with self._lock:
            return self._count - self._here()

    def _here(self) -> bool:
        return bool(getattr(self._own, "here", False))
