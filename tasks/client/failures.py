"""One-way calls that were given up: counted, logged now and then, and reported by `flush`."""

from __future__ import annotations

import threading
import time

from celery.utils.log import get_logger

logger = get_logger(__name__)

LOG_EVERY = 10.0  # s between two lines about lost one-way calls


class Failures:
    """`lost`: number of one-way calls of one client that were lost, ever."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.lost = 0
        self._untold, self._first = 0, None  # since `take`
        self._unlogged, self._log_at = 0, 0.0

    _first: Exception | None

    def add(self, service: str, error: Exception) -> None:
        """Count one more lost call."""
        with self._lock:
            self.lost += 1
            self._untold += 1
            self._unlogged += 1
            self._first = self._first or error
            if time.monotonic() < self._log_at:
                return
            number, self._unlogged, self._log_at = self._unlogged, 0, time.monotonic() + LOG_EVERY
        if number == 1:
            logger.error("a one-way call of %s is lost: %s", service, error)
        else:
            logger.error("%d more one-way calls are lost, the last of %s: %s", number, service, error)

    def take(self) -> tuple[int, Exception | None]:
        """Return (how many were lost since this was last called, the error of the first of them)."""
        with self._lock:
            taken = self._untold, self._first
            self._untold, self._first = 0, None
            return taken
