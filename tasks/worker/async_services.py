"""The `async def` services of a ConsumerLoop: batches that begin, go on step by step, are given up, and end."""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from celery.utils.log import get_logger

from tasks.app.outcome import ENDS_WORKER, failed
from tasks.app.protocol import seconds_until
from tasks.worker.async_runs import LOST, STOPPING, AsyncRuns, Run
from tasks.worker.event_loop import EventLoop, Turn
from tasks.worker.mailbox import Mailbox
from tasks.worker.replies import Outbox
from tasks.worker.service_queue import Call, ServiceQueue

logger = get_logger(__name__)

CANCELLED_WITHIN = 0.5  # s that calls have to end in when their worker stops and they are cancelled


class AsyncServices:
    """Runs batches in an event loop; all methods are for the thread of the services.

    `settle`: called with each run that ended. `ended`: runs to go on with, by `resume`.
    """

    def __init__(self, settle: Callable[[Run], None]) -> None:
        self._settle = settle
        self.ended: Mailbox[Run | BaseException | Callable[[], None]] = Mailbox()
        self._loop = EventLoop(self.ended.post)
        self._runs = AsyncRuns(self._loop, self.ended.post)
        self._handling = 0  # event handlers that run

    @property
    def turn(self) -> Turn:
        """Return the turn that plain services have to take."""
        return self._loop.turn

    @property
    def descriptor(self) -> int:
        """Return a descriptor that is readable while there is something to `resume`."""
        return self.ended.descriptor

    @property
    def busy(self) -> bool:
        """Return whether anything runs."""
        return bool(self._runs.running) or self._handling > 0

    def begin(self, queue: ServiceQueue, calls: list[Call], outbox: Outbox) -> None:
        """Run a batch; its outcomes are for this `outbox`."""
        moments = [str(call.properties.headers.get("expires") or "") for call in calls]
        limit = time.monotonic() + max(map(seconds_until, moments)) if all(moments) else None
        self._runs.begin(Run(queue, calls, queue.chain.steps(queue, calls), limit, self._settle, outbox))

    def handle(self, event: str, handler: Callable[[Any], Any], payload: Any, done: Callable[[], None]) -> None:
        """Run an `async def` event handler; `done` is called when it has ended."""
        self._handling += 1

        def finish(error: BaseException | None) -> None:
            self._handling -= 1
            done()
            if isinstance(error, ENDS_WORKER):
                raise error
            if error is not None:
                logger.error("the handler of event %r failed\n%s", event, failed(error).traceback)

        self._loop.spawn(handler, payload, lambda error: self.ended.post(partial(finish, error)))

    def resume(self) -> None:
        """Go on with the runs that have ended a step. Raises an error that ends this worker."""
        last: BaseException | None = None  # to be raised when the others have been settled
        for one in self.ended.take():
            try:
                if isinstance(one, BaseException):
                    raise one
                if isinstance(one, Run):
                    self._runs.resume(one)
                else:
                    one()
            except BaseException as error:
                last = error
        if last is not None:
            raise last

    def revoked(self) -> None:
        """Cancel the batches all of whose calls have been revoked; from any thread."""
        self._runs.look_for_revoked()

    def lose(self) -> None:
        """Cancel the batches that run, since they are delivered again; those that may run only once go on."""
        self._runs.give_up([run for run in self._runs.running if run.queue.spec.retries], LOST)

    def give_up(self) -> None:
        """Cancel the batches that run, since this worker stops; wait a moment for them."""
        running = self._runs.running
        self._runs.give_up(list(running), STOPPING)
        limit = time.monotonic() + CANCELLED_WITHIN
        poll = select.poll()
        poll.register(self.descriptor, select.POLLIN)
        while running and (left := limit - time.monotonic()) > 0:
            poll.poll(1000 * left)
            self.resume()
        for run in list(running):
            logger.warning("a call of %s goes on though it was cancelled; it runs again elsewhere", run.queue.spec.name)
            self._runs.forsake(run)

    def stop(self) -> None:
        """End the loop."""
        self._loop.stop()
        self.ended.close()
