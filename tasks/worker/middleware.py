"""Hooks around the calls of services: retries, deadlines, delivery limits, metrics, task events.

A service's Chain is built once, of the hooks that its middleware overrides: hooks that are left alone cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tasks.app.steps import Steps, drive, nested
from tasks.worker.service_queue import Call, ServiceQueue


class Middleware:
    """Base of middleware. Hooks run in the thread of the services and must not block for long."""

    def before_run(self, queue: ServiceQueue, call: Call) -> str | None:
        """Look at a call whose turn has come; return why to drop and count it, or None."""

    def around_run(self, queue: ServiceQueue, calls: list[Call]) -> Steps | None:
        """Return the steps in which a batch is run; None: at once, as it is.

        The steps raise BrokerError when the whole batch has to wait for Redis or the broker.
        """

    def after_run(self, queue: ServiceQueue, calls: Sequence[Call], outcomes: Sequence[Any], seconds: float) -> None:
        """Take note of a batch that was run, in `seconds`."""


class Chain:
    """The hooks of one service, each a tuple in the order of the middleware; `run` runs a batch through all of them."""

    def __init__(self, middleware: Sequence[Middleware], run: Callable[[ServiceQueue, list[Call]], list[Any]]) -> None:
        self.before_run = _overridden(middleware, "before_run")
        self.after_run = _overridden(middleware, "after_run")
        self._around, self._run = _overridden(middleware, "around_run"), run

    def run(self, queue: ServiceQueue, calls: list[Call], inner: int = 0) -> list[Any]:
        """Run a batch through the middleware from number `inner` on; return one outcome per call."""
        for index in range(inner, len(self._around)):
            steps = self._around[index](queue, calls)
            if steps is not None:
                return drive(steps, partial(self.run, queue, inner=index + 1))
        return self._run(queue, calls)

    def steps(self, queue: ServiceQueue, calls: list[Call], inner: int = 0) -> Steps:
        """Return the steps in which a batch is run, for an event loop."""
        for index in range(inner, len(self._around)):
            steps = self._around[index](queue, calls)
            if steps is not None:
                return (yield from nested(steps, partial(self.steps, queue, inner=index + 1)))
        return (yield calls)


def _overridden(middleware: Sequence[Middleware], hook: str) -> tuple[Callable[..., Any], ...]:
    base = getattr(Middleware, hook)
    return tuple(getattr(one, hook) for one in middleware if getattr(type(one), hook) is not base)
