"""What a worker does later, in the thread of its services: renewals, and what Redis or the broker was away for."""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable

from tasks.worker.service_queue import Call, ServiceQueue

AGAIN_AFTER = 1.0  # s between tries of what needs Redis or the broker, while that is away


class Timers:
    """Actions, and when they are due on the monotonic clock. `entries`: a heap, whose first is the next."""

    def __init__(self) -> None:
        self.entries: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Run `action` when `seconds` have passed."""
        heapq.heappush(self.entries, (time.monotonic() + seconds, next(self._numbers), action))

    def again(self, action: Callable[[], None]) -> None:
        """Run `action`, which failed, after a moment."""
        self.after(AGAIN_AFTER, action)

    def hold(self, queue: ServiceQueue, call: Call, action: Callable[[], None], seconds: float | None = None) -> None:
        """Run `action` when `seconds` (None: a moment) have passed; until then `queue` holds the call for later."""

        def due() -> None:
            queue.later.discard(call)
            action()

        queue.later.add(call)
        self.after(AGAIN_AFTER if seconds is None else seconds, due)

    def run_next(self) -> None:
        """Run the action that is due first."""
        heapq.heappop(self.entries)[2]()

    def clear(self) -> None:
        """Drop all actions."""
        self.entries.clear()
