"""Additions of a Solver, or of a view of it, to its calls: headers, a priority, a delay, the hooks of middleware."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from tasks.client.arguments import Args
from tasks.client.async_client import AsyncClient
from tasks.client.delay import checked_delay
from tasks.client.driver import Driver
from tasks.client.future import Handle
from tasks.client.outgoing import Outgoing
from tasks.middleware import Call, Middleware, checked_headers, hook_of
from tasks.service import Spec
from warren.errors import ConfigurationError


class Extras:
    """Headers and hooks of all calls of one Solver, or of one view of it."""

    def __init__(
        self,
        middleware: Sequence[Middleware],
        headers: Mapping[str, Any],
        priority: int | None = None,
        delay: float | None = None,
    ) -> None:
        self.middleware, self.headers, self.priority, self.delay = middleware, headers, priority, delay
        both = [(hook_of(one, "before_send"), hook_of(one, "after_reply")) for one in middleware]
        self._hooks = [pair for pair in both if pair != (None, None)]

    @property
    def empty(self) -> bool:
        """Return whether these add nothing to a call."""
        return not (self._hooks or self.headers) and self.priority is None and self.delay is None

    def send(self, client: Driver, spec: Spec, given: Args, time_to_live: float | None) -> Handle:
        """Send a call. Raises the error of a hook that refuses it, and those of Driver.submit."""
        outgoing = self.outgoing(spec.name, spec, given, client.longest_delay)
        try:
            handle = client.submit(spec, outgoing.args, outgoing.kwargs, time_to_live, outgoing)
        except BaseException as error:
            outgoing.end(error)
            raise
        if self._hooks:
            handle.when_ended(lambda ended: outgoing.end(ended.failure))
        return handle

    def submit(self, bridge: AsyncClient, spec: Spec, given: Args, time_to_live: float | None) -> asyncio.Future[Any]:
        """Send a call from an event loop. Raises as `send`."""
        outgoing = self.outgoing(spec.name, spec, given, bridge.longest_delay)
        try:
            future = bridge.submit(spec, outgoing.args, outgoing.kwargs, time_to_live, outgoing)
        except BaseException as error:
            outgoing.end(error)
            raise
        if self._hooks:
            future.add_done_callback(lambda ended: outgoing.end(_error_of(ended)))
        return future

    def outgoing(self, service: str, spec: Spec | None, given: Args, longest_delay: float = 0.0) -> Outgoing:
        """Return a call that is about to be sent, after its hooks have run. Raises what they raise.

        `spec`: None for a task that is no service; `longest_delay`: s, 0 in a chord. Raises ConfigurationError for a
        priority or a delay that the call cannot have.
        """
        if self.priority is not None and spec is not None:
            _check_priority(spec, self.priority)
        delay = None if self.delay is None else checked_delay(self.delay, spec, longest_delay)
        call = Call(service, str(uuid.uuid4()), given.args, given.kwargs, dict(self.headers))
        outgoing = Outgoing(call, self._hooks, None if spec is None else self.priority, delay)
        try:
            for before, _ in self._hooks:
                if before is not None:
                    before(call)
                outgoing.entered += 1
            if self._hooks:
                call.headers = checked_headers(call.headers)
        except BaseException as error:
            outgoing.end(error)
            raise
        return outgoing


def _check_priority(spec: Spec, priority: int) -> None:
    if not spec.priorities:
        raise ConfigurationError(
            f"priority={priority}: {spec.name} has no priorities; mark it with @service(priorities=N)"
        )
    if not isinstance(priority, int) or isinstance(priority, bool) or not 0 <= priority < spec.priorities:
        raise ConfigurationError(f"priority={priority!r}: {spec.name} has 0 (the lowest) to {spec.priorities - 1}")


def _error_of(ended: asyncio.Future[Any]) -> BaseException | None:
    if ended.cancelled():
        return asyncio.CancelledError()
    return ended.exception()
