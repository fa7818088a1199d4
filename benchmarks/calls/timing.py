"""A worker that records where its part of a call's time goes, for the profile of `benchmarks.calls`."""

from __future__ import annotations

import statistics
import time
from typing import Any

from benchmarks.calls.actor import Actor
from tasks.service import service
from tasks.worker.consumer_loop import ConsumerLoop
from tasks.worker.service_queue import ServiceQueue

PARTS = ("take in and decode", "method", "encode the result", "write reply and acknowledgement")


class TimedLoop(ConsumerLoop):
    """Records how long, in s, each part took in each turn that ran a call."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.spent: dict[str, list[float]] = {part: [] for part in PARTS}

    def _take(self, deliveries: Any) -> None:
        started = time.perf_counter()
        super()._take(deliveries)
        self.spent[PARTS[0]].append(time.perf_counter() - started)

    def _run_batch(self, queue: ServiceQueue, calls: Any) -> None:
        started, busy = time.perf_counter(), self._metrics.busy
        super()._run_batch(queue, calls)
        method = self._metrics.busy - busy
        self.spent[PARTS[1]].append(method)
        self.spent[PARTS[2]].append(time.perf_counter() - started - method)

    def _open(self, link: Any) -> None:
        super()._open(link)
        outbox, flush = self._outbox, self._outbox.flush

        def timed_flush() -> None:
            started, wrote = time.perf_counter(), outbox.pending
            flush()
            if wrote:
                self.spent[PARTS[3]].append(time.perf_counter() - started)

        outbox.flush = timed_flush  # type: ignore[method-assign]


class TimedActor(Actor):
    """The benchmark's actor, which can return the times that its process recorded."""

    role = "actor"
    receiver: TimedLoop

    @service
    def spent(self) -> dict[str, float]:
        """Return the median of each part, in s."""
        return {part: statistics.median(times) for part, times in self.receiver.spent.items()}
