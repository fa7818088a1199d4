"""The choice of the next batch: of the services that are ready, the one whose oldest call came first."""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any

from tasks.worker.service_queue import ServiceQueue

Dropped = Callable[[ServiceQueue, Any, str], None]


class BatchScheduler:
    """Gathers the calls of `queues` into batches. `dropped` gets calls that nobody needs any more, and the reason.

    A service with calls has one entry in the ring, by the age of its oldest call. If it is found not ready, it leaves
    the ring, until its next call comes or its time is over. `age`: a number by which a call is older than those that
    came after it.
    """

    def __init__(
        self,
        queues: Iterable[ServiceQueue],
        dropped: Dropped,
        age: Callable[[Any], int] = attrgetter("delivery.tag"),
    ) -> None:
        self._queues = list(queues)
        self._timed = [queue for queue in self._queues if queue.spec.wait is not None]
        self._ring: list[tuple[int, int, ServiceQueue]] = []  # a heap
        self._numbers = itertools.count()  # number entries, so that services are never compared
        self._dropped, self._age = dropped, age

    def clear(self) -> None:
        """Forget all calls: their messages are delivered again."""
        self._ring.clear()
        for queue in self._queues:
            queue.waiting.clear()
            queue.later.clear()
            queue.entered = False

    def add(self, queue: ServiceQueue, call: Any) -> None:
        """Take in a call that may run from now on."""
        if not queue.waiting:
            queue.since = time.monotonic()
        if queue.spec.priorities:
            queue.put_by_priority(call)
        else:
            queue.waiting.append(call)
        if not queue.entered:
            self._enter(queue)

    def go_on(self, queue: ServiceQueue) -> None:
        """Look again at a queue that was full."""
        if queue.waiting and not queue.entered:
            self._enter(queue)

    def _enter(self, queue: ServiceQueue) -> None:
        queue.entered = True
        heapq.heappush(self._ring, (self._age(queue.waiting[0]), next(self._numbers), queue))

    def patience(self) -> float | None:
        """Return the s until a batch that waits for more calls has waited long enough; None while none does."""
        left = [
            queue.since + queue.spec.wait - time.monotonic()
            for queue in self._timed
            if queue.waiting and queue.spec.wait is not None and not queue.full
        ]
        return max(0.0, min(left)) if left else None

    def next(self, poll: Callable[[], bool]) -> tuple[ServiceQueue, list[Any]] | None:
        """Return the next batch, or None while nothing may run. `poll` takes in what has arrived; False if nothing."""
        ring = self._ring
        for queue in self._timed:
            if queue.waiting and not queue.entered and not queue.full and self._waited(queue):
                self._enter(queue)
        while ring:
            queue = ring[0][2]
            # Make sure that nothing more has arrived: a poll of the socket costs little compared with a call.
            if queue.waiting and len(queue.waiting) < queue.spec.batch and poll():
                continue
            heapq.heappop(ring)
            queue.entered = False
            if queue.waiting and not queue.full and self.ready(queue) and (calls := self.take(queue)):
                if queue.waiting:
                    self._enter(queue)
                return queue, calls
        return None

    def ready(self, queue: ServiceQueue) -> bool:
        """Return whether enough calls wait that somebody still needs, or they have waited long enough."""
        minimum = queue.spec.minimum
        if minimum > 1 and len(queue.waiting) >= minimum:
            live = [call for call in queue.waiting if not self._drop(queue, call)]
            queue.waiting.clear()
            queue.waiting.extend(live)
        return len(queue.waiting) >= minimum or self._waited(queue)

    def take(self, queue: ServiceQueue) -> list[Any]:
        """Return up to a batch of calls that somebody still needs."""
        calls: list[Any] = []
        waiting, batch = queue.waiting, queue.spec.batch
        while waiting and len(calls) < batch:
            call = waiting.popleft()
            if not self._drop(queue, call):
                calls.append(call)
        if waiting:
            queue.since = time.monotonic()
        return calls

    def _drop(self, queue: ServiceQueue, call: Any) -> bool:
        for hook in queue.chain.before_run:
            why = hook(queue, call)
            if why is not None:
                self._dropped(queue, call, why)
                return True
        return False

    @staticmethod
    def _waited(queue: ServiceQueue) -> bool:
        return queue.spec.wait is not None and time.monotonic() - queue.since >= queue.spec.wait
