"""Which calls run next, and together: services take turns in the order in which their calls came."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable

from tasks.worker.service_queue import Call, ServiceQueue

Dropped = Callable[[ServiceQueue, Call], None]


class BatchScheduler:
    """Gathers the calls of `queues` to batches. `dropped` is told of calls that nobody needs any more."""

    def __init__(self, queues: Iterable[ServiceQueue], dropped: Dropped) -> None:
        self._queues = list(queues)
        self._timed = [queue for queue in self._queues if queue.spec.wait is not None]
        self._order: deque[ServiceQueue] = deque()  # a turn for each call that came
        self._dropped = dropped

    def clear(self) -> None:
        """Forget all calls: their messages are delivered again."""
        self._order.clear()
        for queue in self._queues:
            queue.waiting.clear()

    def add(self, queue: ServiceQueue, call: Call) -> None:
        """A call that may run from now on."""
        if not queue.waiting:
            queue.since = time.monotonic()
        self._order.append(queue)
        queue.waiting.append(call)

    def patience(self) -> float | None:
        """s until a batch that waits for more calls has waited long enough; None while none does."""
        left = [
            queue.since + queue.spec.wait - time.monotonic()
            for queue in self._timed
            if queue.waiting and queue.spec.wait is not None
        ]
        return max(0.0, min(left)) if left else None

    def next(self, poll: Callable[[], bool]) -> tuple[ServiceQueue, list[Call]] | None:
        """The next batch, or None while nothing may run. `poll` takes in what else has arrived; False: nothing has."""
        order = self._order
        for queue in self._timed:
            if queue.waiting and self._waited(queue):
                order.append(queue)
        while order:
            queue = order.popleft()
            spec = queue.spec
            if not queue.waiting:
                continue  # its calls went with an earlier batch
            if spec.batch > 1 and len(queue.waiting) < spec.batch:
                # Is there really nothing more? A poll of the socket costs little beside a call.
                order.appendleft(queue)
                if poll():
                    continue
                order.popleft()
                if not self.ready(queue):
                    continue  # its next call, or its time, brings it back
            elif spec.minimum > 1 and not self.ready(queue):
                continue
            if calls := self.take(queue):
                return queue, calls
        return None

    def ready(self, queue: ServiceQueue) -> bool:
        """Whether enough calls wait that somebody still needs, or they have waited long enough."""
        minimum = queue.spec.minimum
        if minimum > 1 and len(queue.waiting) >= minimum:
            live = [call for call in queue.waiting if not self._drop(queue, call)]
            queue.waiting.clear()
            queue.waiting.extend(live)
        return len(queue.waiting) >= minimum or self._waited(queue)

    def take(self, queue: ServiceQueue) -> list[Call]:
        """Up to a batch of calls that somebody still needs."""
        calls: list[Call] = []
        waiting, batch = queue.waiting, queue.spec.batch
        while waiting and len(calls) < batch:
            call = waiting.popleft()
            if not self._drop(queue, call):
                calls.append(call)
        if waiting:
            queue.since = time.monotonic()
        return calls

    def _drop(self, queue: ServiceQueue, call: Call) -> bool:
        for hook in queue.chain.before_run:
            if hook(queue, call) is not None:
                self._dropped(queue, call)
                return True
        return False

    @staticmethod
    def _waited(queue: ServiceQueue) -> bool:
        return queue.spec.wait is not None and time.monotonic() - queue.since >= queue.spec.wait
