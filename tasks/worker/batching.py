"""The task whose function runs a batch of calls at once, however they are received.

A message stays unacknowledged until the call that used it has returned. So the broker delivers again what a killed
worker held, and nothing that the broker confirmed is lost. Two modules gather calls: celery_strategy.py those that
Celery receives (on any broker, and the learner's segments), and batch_scheduler.py, which is faster, those that
services receive on RabbitMQ.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from tasks.app.celery_consumer import Task
from tasks.app.outcome import Outcome, for_celery
from tasks.retrying import RetryOn
from tasks.worker.bookkeeping import replayed
from tasks.worker.failures import Failures
from tasks.worker.hooks import Hooks
from tasks.worker.running import GivenUp, LocalCall, arun, run
from tasks.worker.time_limits import limited
from tasks.worker.timers import longest_hold
from tasks.worker.trying_again import tried_again


class BatchTask(Task):
    """A task whose function receives a list of `batch` calls' arguments and returns as many results, in order.

    A call of one positional argument gives that argument, a call of several gives their tuple. A batch leaves when
    `minimum` calls wait (default: `batch`), or `wait` s after its first.
    """

    abstract = True
    batch = 1
    minimum: int | None = None
    wait: float | None = None
    isolate = False
    hooks: Hooks | None = None  # the user's middleware
    retry_on: RetryOn | None = None
    time_limits: tuple[float, float | None] | None = None  # s, and s to the worker's end
    plural = True  # the function receives a list even where batch is 1
    priorities = 0
    concurrency = 0  # see tasks.service.Spec
    Strategy = "tasks.worker.celery_strategy:strategy"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the outcome that `record` replays; outside of it (as in `task.apply`) run the call."""
        kept = replayed()
        (outcome,) = self.run_calls([LocalCall(args, kwargs)]) if kept is None else kept
        if isinstance(outcome, Outcome):
            raise for_celery(outcome)
        return outcome

    def run_calls(self, calls: Sequence[Any]) -> list[Any]:
        """Run calls (objects with what a Raw has) and return one outcome per call.

        Failures are logged, and kept in `failures`.
        """
        if self.concurrency:  # outside of a worker, which has an event loop for it
            outcomes = asyncio.run(self.arun_calls(calls, lambda: False))
        else:
            outcomes = (
                self._run_plainly(calls) if self.hooks is None else self.hooks.run(self.name, calls, self._run_plainly)
            )
        return self.concluded(calls, outcomes)

    def concluded(self, calls: Sequence[Any], outcomes: list[Any]) -> list[Any]:
        """Note the failures among the outcomes; return the outcomes, those to be tried again as Again."""
        self.failures.note(outcomes)
        if self.retry_on is None:
            return outcomes
        return tried_again(self.name, self.retry_on, longest_hold(self.app), calls, outcomes)

    def _run_plainly(self, calls: Sequence[Any]) -> list[Any]:
        return run(self.name, self.function, max(self.batch, 2 if self.plural else 1), calls, self.isolate)

    async def arun_calls(self, calls: Sequence[Any], given_up: GivenUp) -> list[Any]:
        """Run calls as `run_calls`, of an `async def` function, without `concluded`. `given_up`: see arun."""

        async def arun_plainly(some: Sequence[Any]) -> list[Any]:
            size = max(self.batch, 2 if self.plural else 1)
            return await arun(self.name, self.function, size, some, self.isolate, given_up)

        return await (arun_plainly(calls) if self.hooks is None else self.hooks.arun(self.name, calls, arun_plainly))

    @cached_property
    def function(self) -> Callable[..., Any]:
        """Return the task's function, with its time limits."""
        run_it: Callable[..., Any] = self.run
        return run_it if self.time_limits is None else limited(self.name, run_it, *self.time_limits)

    @cached_property
    def failures(self) -> Failures:
        """Return the failures of its calls in this process."""
        return Failures(self.name)
