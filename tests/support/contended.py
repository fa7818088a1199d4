"""A lock that tells a test when a thread waits for it."""

from __future__ import annotations

import threading
from typing import Any


class Contended:
    """A lock around `lock`. `came` is set once a thread waits for it; a test may set it for work done without."""

    def __init__(self, lock: Any = None) -> None:
        self._lock, self.came = lock or threading.Lock(), threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lock, name)

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self.came.set()
            assert self._lock.acquire(timeout=60.0)

    def __exit__(self, *_: object) -> None:
        self._lock.release()
