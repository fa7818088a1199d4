"""Actions that a worker runs later in the thread of its services: renewals, and tries while a server is away."""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable
from typing import Any

from tasks.worker.service_queue import Call, ServiceQueue

HELD_FOR = 900.0  # s that a call may wait here: RabbitMQ takes a message back that is held for 30 minutes
MOST_HELD = 32  # calls of one service that may wait here: half of what a worker holds, so that others pass
AGAIN_AFTER = 1.0  # s between tries of an action that needs Redis or the broker, while that is away


def longest_hold(app: Any) -> float:
    """Return the s for which a worker may hold a call: half of those after which the broker would redeliver it."""
    return float((app.conf.broker_transport_options or {}).get("visibility_timeout", 2 * HELD_FOR)) / 2


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

    @staticmethod
    def has_room(queue: ServiceQueue, call: Call) -> bool:
        """Return whether one more failed call may be held to be tried again.

        Failed one-way calls may take all the room that a worker has for their service: other calls then wait in the
        broker, and none is lost. A call whose caller waits for an answer fails instead.
        """
        return len(queue.later) < MOST_HELD or not queue.spec.response

    def run_next(self) -> None:
        """Run the action that is due first."""
        heapq.heappop(self.entries)[2]()

    def clear(self) -> None:
        """Drop all actions."""
        self.entries.clear()
