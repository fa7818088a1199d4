"""Counters of what a worker has done, for `python -m workers.services`, Flower and the log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from celery.worker import state as worker_state

from tasks.app.outcome import Failed
from tasks.worker.middleware import Middleware
from tasks.worker.service_queue import Call, ServiceQueue

DECAY = 0.8  # factor by which `slowest` falls with each batch that is faster


class Metrics(Middleware):
    """Counts calls, failures and batches of each service. `busy`: s spent in services."""

    def __init__(self) -> None:
        self.busy = 0.0

    def after_run(self, queue: ServiceQueue, calls: Sequence[Call], outcomes: Sequence[Any], seconds: float) -> None:
        """See Middleware."""
        self.busy += seconds / (queue.spec.concurrency or 1)  # so many run at once in a worker that is wholly busy
        counts = queue.counts
        counts["batches"] += 1
        counts["calls"] += len(calls)
        for outcome in outcomes:
            if isinstance(outcome, Failed):
                counts["failed"] += 1
        before = queue.slowest
        queue.slowest = seconds if before == float("inf") else max(seconds, DECAY * before)
        worker_state.total_count[queue.spec.name] += len(calls)
