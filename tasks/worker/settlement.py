"""The ends of calls on one connection: their outcomes are applied, or the calls are held and run again."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from celery.exceptions import TaskRevokedError
from celery.utils.log import get_logger

from tasks.app.outcome import Again, Dropped, NotYet, dropped
from tasks.worker.async_runs import Run
from tasks.worker.batch_scheduler import BatchScheduler
from tasks.worker.deadlines import Deadlines
from tasks.worker.outcomes import Outcomes
from tasks.worker.replies import Outbox
from tasks.worker.service_queue import Call, ServiceQueue
from tasks.worker.timers import Timers

logger = get_logger(__name__)

FLUSH_AFTER = 0.0005  # s; a batch that takes longer does not run before the replies that are ready are written


class Settlement:
    """Settles batches: applies the outcomes of their calls, and holds the calls that are to be tried again."""

    def __init__(
        self, scheduler: BatchScheduler, outcomes: Outcomes, outbox: Outbox, timers: Timers, deadlines: Deadlines
    ) -> None:
        self._scheduler, self._outcomes, self._outbox = scheduler, outcomes, outbox
        self._timers, self._deadlines = timers, deadlines

    def drop(self, queue: ServiceQueue, call: Call, why: str) -> None:
        """Drop and count a call that nobody needs any more; `why`: EXPIRED or REVOKED."""
        queue.counts["dropped"] += 1
        if queue.task.hooks is not None:
            queue.task.hooks.drop(queue.spec.name, call, why)
        self._outcomes.settle(queue, call, dropped(why))

    def settle(self, queue: ServiceQueue, calls: list[Call], outcomes: list[Any], seconds: float) -> None:
        """Apply the outcomes of a batch that was run, then run the hooks that follow it."""
        waits = False
        for call, outcome in zip(calls, outcomes, strict=True):
            if type(outcome) is NotYet:
                waits = True
                self._run_later(queue, call, outcome)
            elif type(outcome) is Again and self._timers.has_room(queue, call):
                waits = True
                queue.counts["retried"] += 1
                self._timers.hold(queue, call, partial(self._scheduler.add, queue, call), outcome.seconds)
            else:
                self._outcomes.settle(queue, call, outcome)
        if waits:
            ran = [each for each in zip(calls, outcomes, strict=True) if each[0] not in queue.later]
            calls, outcomes = [call for call, _ in ran], [outcome for _, outcome in ran]
        for hook in queue.chain.after_run:
            try:
                hook(queue, calls, outcomes, seconds)
            except Exception:
                logger.exception("what follows the calls of %s failed", queue.spec.name)
        # A call that was given up is acknowledged before the next one runs: if that one killed this worker, the first
        # would be given up a second time.
        if seconds > FLUSH_AFTER or any(call.delivery.redelivered for call in calls):
            self._outbox.flush()
            self._deadlines.read_clock()

    def _run_later(self, queue: ServiceQueue, call: Call, outcome: NotYet) -> None:
        logger.warning("a call of %s cannot be run for now, trying again: %s", queue.spec.name, outcome.message)
        self._timers.hold(queue, call, lambda: self._scheduler.add(queue, call))

    def settle_run(self, run: Run) -> None:
        """Settle a batch that ran in the event loop; hand it back where it was given up."""
        queue = run.queue
        if run.outcomes is None:
            self._give_back(queue, run.calls)
            return
        ran = []
        for call, outcome in zip(run.calls, run.outcomes, strict=True):
            if isinstance(outcome, Dropped) and isinstance(outcome.error, TaskRevokedError):
                queue.counts["dropped"] += 1
                self._outcomes.settle(queue, call, outcome)
            else:
                ran.append((call, outcome))
        if ran:
            calls, outcomes = [call for call, _ in ran], [outcome for _, outcome in ran]
            self.settle(queue, calls, outcomes, time.monotonic() - run.started)

    def _give_back(self, queue: ServiceQueue, calls: list[Call]) -> None:
        """Put calls that a stop cancelled back into their queue; report those that may run only once as lost."""
        for call in calls:
            if queue.spec.retries == 0 and call.direct:
                self._outbox.reply_lost(call.properties)
                self._outbox.ack(call.delivery.tag)
            else:
                queue.waiting.append(call)
