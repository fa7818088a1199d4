"""`async def` services that Celery's own consumer receives: they run in an event loop, begun by the pool's thread.

The pool's thread asks Redis and does Celery's bookkeeping: it begins a batch, goes on with it when a step has ended,
and records the outcomes. Only the consumer's thread touches the channel, as for any other task.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from tasks.app.steps import Steps
from tasks.worker.async_runs import STOPPING, AsyncRuns, Run
from tasks.worker.service_queue import ServiceQueue

FINISH_WITHIN = 2.0  # s after being told to stop in which calls that run may end; the rest goes back to its queue
CANCELLED_WITHIN = 0.5  # s that calls which are cancelled then may take to end


class AsyncTasks:
    """The batches of one consumer that run in the event loop. Methods are for the pool's thread unless they say more.

    `record`: called with each run that ended, returns the endings of its requests; `settle`: carries these out, in the
    consumer's thread. `taking`: held while a batch is taken, unless `stopping`, and announced by `expect`.
    """

    def __init__(
        self,
        pool: Any,
        record: Callable[[Run], list[Any]],
        settle: Callable[[Run, list[Any]], None],
        taking: threading.Lock,
    ) -> None:
        self._pool, self._record, self._settle, self._taking = pool, record, settle, taking
        self._runs = AsyncRuns(pool.event_loop(), self._post)
        self._idle = threading.Event()
        self._idle.set()
        self.stopping = False
        pool.finishes.append(self.finish)

    def expect(self) -> None:
        """Make a stop wait for this batch before its `begin`: marked as begun, it could not run elsewhere."""
        self._idle.clear()

    def begin(self, queue: ServiceQueue, requests: Sequence[Any]) -> None:
        """Run a batch that was expected."""
        self._runs.begin(Run(queue, requests, steps_of(queue.task, requests), _limit(requests), self._ended))

    def look_for_revoked(self) -> None:
        """Cancel the batches all of whose calls have been revoked; from any thread."""
        self._runs.look_for_revoked()

    def finish(self) -> None:
        """Wait a while for the batches that run, then cancel them: this worker stops. In the consumer's thread."""
        with self._taking:
            self.stopping = True
        if not self._idle.wait(FINISH_WITHIN):
            self._runs.give_up(list(self._runs.running), STOPPING)
            self._idle.wait(CANCELLED_WITHIN)
        self._runs.give_up_all()

    def _post(self, run: Run) -> None:
        self._pool.apply_last(partial(self._runs.resume, run))

    def _ended(self, run: Run) -> None:
        endings = [] if run.outcomes is None else self._record(run)  # None: given up; its messages go back
        if not self._runs.running:
            self._idle.set()
        self._pool.call_soon(partial(self._settle, run, endings))


def steps_of(task: Any, requests: Sequence[Any]) -> Steps:
    """Return the steps in which requests are run: all at once, unless their deliveries are to be counted."""
    steps: Steps | None = task.app.warren_deliveries.steps(task.name, task.deliveries, requests, requests)
    return _at_once(requests) if steps is None else steps


def _at_once(requests: Sequence[Any]) -> Steps:
    return (yield list(requests))


def _limit(requests: Sequence[Any]) -> float | None:
    """Return when all requests have expired, on the monotonic clock; None where one never does."""
    moments = [request.expires for request in requests]
    if not all(moments):
        return None
    last = max(moment if moment.tzinfo else moment.replace(tzinfo=UTC) for moment in moments)
    return time.monotonic() + float((last - datetime.now(UTC)).total_seconds())
