"""Segments that have found room in the learner's queue but have not arrived there yet."""

from __future__ import annotations

import threading


class Leaving:
    """Counts these segments, at most one per sending thread. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock, self._own = threading.Lock(), threading.local()
        self._count = 0

    def begin(self) -> bool:
        """Count this thread's segment, which has found room; return False if it is counted already."""
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
        """Return the count without this thread's own segment, which may have to be sent again."""
        with self._lock:
            return self._count - self._here()

    def _here(self) -> bool:
        return bool(getattr(self._own, "here", False))
