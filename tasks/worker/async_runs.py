"""Batches of calls of `async def` services that run in the process's event loop, until each has its outcomes.

Their owner, the thread of the services, begins a batch by `begin`. A batch passes through the same middleware as any
other, in steps (tasks/app/steps.py). Each step runs in the loop; when it has ended, the owner is told, and continues
the batch by `resume`. So work that asks Redis or writes to the broker stays in the owner's thread.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from celery.worker import state as worker_state

from tasks.app.outcome import ENDS_WORKER, EXPIRED, REVOKED, dropped, not_yet, outcome_of
from tasks.app.steps import Steps
from tasks.worker.event_loop import EventLoop
from tasks.worker.service_queue import ServiceQueue
from warren.errors import BrokerError

STOPPING, LOST, BROKEN = "its worker stops", "the connection to the broker is lost", "the event loop has ended"
DROPPED = (EXPIRED, REVOKED)


class Run:
    """A batch that runs. `limit`: when nobody needs it any more, on the monotonic clock; `ended`: called at its end.

    `outbox`: by which its owner answers. `outcomes`: one per call, once it has ended; None where it was given up for
    STOPPING or LOST.
    """

    def __init__(
        self,
        queue: ServiceQueue,
        calls: Sequence[Any],
        steps: Steps,
        limit: float | None,
        ended: Callable[[Run], None],
        outbox: Any = None,
    ) -> None:
        self.queue, self.calls, self.steps, self.limit, self.ended = queue, list(calls), steps, limit, ended
        self.outbox = outbox
        self.started = time.monotonic()
        self.outcomes: list[Any] | None = None
        self.why = ""  # it was cancelled; written in the loop's thread, as are `found`, `error` and `task`
        self.asked: list[Any] = []  # the calls of the present step; written by the owner
        self.found: list[Any] = []  # their outcomes
        self.error: BaseException | None = None  # the step's error, in place of outcomes
        self.task: asyncio.Task[None] | None = None


class AsyncRuns:
    """The batches that run. `post`: called in the loop's thread with each batch whose step has ended, for `resume`."""

    def __init__(self, loop: EventLoop, post: Callable[[Run], None]) -> None:
        self.loop, self._post = loop, post
        loop.on_broken.insert(0, self._on_broken)
        self.running: set[Run] = set()  # written by the owner
        self._in_loop: set[Run] = set()  # written in the loop's thread

    # In the owner's thread.

    def begin(self, run: Run) -> None:
        """Begin a batch of a queue that is not full."""
        queue = run.queue
        self.running.add(run)
        queue.running += 1
        queue.full = queue.running >= queue.spec.concurrency
        self._go_on(run, partial(next, run.steps))

    def resume(self, run: Run) -> None:
        """Go on with a batch whose step has ended. Raises an error that ends this worker."""
        if run not in self.running:
            return  # forsaken
        if run.error is not None:
            self._go_on(run, partial(run.steps.throw, run.error))
        elif run.why == BROKEN and not run.found:
            pass  # this worker ends, as if it had been killed
        elif run.why and not run.found:
            run.steps.close()
            self._end(run, None)
        else:
            self._go_on(run, partial(run.steps.send, run.queue.task.concluded(run.asked, run.found)))

    def _go_on(self, run: Run, step: Callable[[], list[Any]]) -> None:
        try:
            calls = step()
        except StopIteration as done:
            self._end(run, done.value)
        except BrokerError as error:
            self._end(run, [not_yet(error)] * len(run.calls))
        except BaseException as error:
            try:
                self._end(run, [outcome_of(error)] * len(run.calls))
            except BaseException:
                self.running.discard(run)
                raise
        else:
            run.asked, run.found, run.error = calls, [], None
            self.loop.call(self._start, run, calls)

    def _end(self, run: Run, outcomes: list[Any] | None) -> None:
        run.outcomes = outcomes
        queue = run.queue
        self.running.discard(run)
        queue.running -= 1
        queue.full = queue.running >= queue.spec.concurrency
        run.ended(run)

    def give_up(self, runs: Sequence[Run], why: str) -> None:
        """Cancel batches for STOPPING or LOST; each ends as soon as its service lets it."""
        for run in runs:
            self.loop.call(self._cancel, run, why)

    def give_up_all(self) -> None:
        """Give up, for STOPPING, the batches that the loop's end cancels; their owner need not wait for them."""
        self.loop.call(self._give_up_all)

    def forsake(self, run: Run) -> None:
        """End a batch that was given up and runs on."""
        run.steps.close()
        self._end(run, None)

    # From any thread.

    def look_for_revoked(self) -> None:
        """Cancel the batches all of whose calls have been revoked."""
        self.loop.call(self._cancel_revoked)

    # In the loop's thread.

    def _start(self, run: Run, calls: Sequence[Any]) -> None:
        self._in_loop.add(run)
        run.task = self.loop.create_task(self._run(run, calls), run.queue.spec.name)
        timer = None if run.limit is None else self.loop.call_at(run.limit, self._cancel, run, EXPIRED)

        def ended(_: asyncio.Task[None]) -> None:
            if timer is not None:
                timer.cancel()
            self._in_loop.discard(run)
            if run.why in DROPPED and not run.found and run.error is None:
                run.found = [dropped(run.why)] * len(calls)  # cancelled before its first step
            self._post(run)

        run.task.add_done_callback(ended)
        if run.why or (worker_state.revoked and self._is_revoked(run)):
            self._cancel(run, run.why or REVOKED)

    @staticmethod
    async def _run(run: Run, calls: Sequence[Any]) -> None:
        try:
            run.found = await run.queue.task.arun_calls(calls, lambda: bool(run.why))
        except BaseException as error:  # an error that ends the worker must not end the loop before the owner is told
            if not run.why or isinstance(error, ENDS_WORKER):
                run.error = error

    def _cancel(self, run: Run, why: str) -> None:
        if run.outcomes is None and not run.why:
            run.why = why
        if run.task is not None:
            run.task.cancel()

    def _give_up_all(self) -> None:
        for run in self._in_loop:
            run.why = run.why or STOPPING

    def _on_broken(self, _: BaseException) -> None:
        for run in self._in_loop:
            run.why = run.why or BROKEN

    def _cancel_revoked(self) -> None:
        for run in list(self._in_loop):
            if self._is_revoked(run):
                self._cancel(run, REVOKED)

    @staticmethod
    def _is_revoked(run: Run) -> bool:
        return all(call.id in worker_state.revoked for call in run.calls)
