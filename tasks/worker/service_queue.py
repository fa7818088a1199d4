"""One service as a worker sees it: its calls that wait here, and counters of earlier ones."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, Protocol

from tasks.amqp.frames import Delivery, Properties
from tasks.amqp.messages import DIRECT_REPLY
from tasks.app.protocol import seconds_until
from tasks.app.steps import Steps
from tasks.middleware import Call as View
from tasks.service import Spec


class Call:
    """One call that a worker holds: its message, and the contents of that."""

    __slots__ = ("args", "delivery", "embed", "kwargs", "properties", "view")

    def __init__(self, delivery: Delivery, properties: Properties, args: Any, kwargs: Any, embed: Any) -> None:
        self.delivery, self.properties = delivery, properties
        self.args, self.kwargs, self.embed = args, kwargs, embed
        self.view: View | None = None  # the call as middleware and the service see it

    @property
    def headers(self) -> dict[str, Any]:
        """Return all headers of its message."""
        return self.properties.headers

    @property
    def id(self) -> str:
        """Return the call's id, which stays the same however often it is delivered."""
        return str(self.properties.headers["id"])

    @property
    def redelivered(self) -> bool:
        """Return whether the broker delivered it before."""
        return self.delivery.redelivered

    @property
    def priority(self) -> int:
        """Return the priority of its message; higher ones run first."""
        return self.properties.priority

    @property
    def direct(self) -> bool:
        """Return whether its caller is one of Warren's clients, which waits on its own connection and resends calls."""
        return self.properties.reply_to.startswith(DIRECT_REPLY)

    @property
    def awaited(self) -> float | None:
        """Return the s (inf: no limit) for which the caller of a direct call waits; None for any other."""
        if not self.direct:
            return None
        expires = self.headers.get("expires")
        return max(0.0, seconds_until(expires)) if expires else math.inf


class Hooks(Protocol):
    """The middleware of a service, as its calls pass it (see middleware.Chain)."""

    before_run: tuple[Callable[..., Any], ...]
    after_run: tuple[Callable[..., Any], ...]

    def run(self, queue: ServiceQueue, calls: list[Call], inner: int = 0) -> list[Any]:
        """Run a batch through the middleware from number `inner` on; return one outcome per call."""

    def steps(self, queue: ServiceQueue, calls: list[Call], inner: int = 0) -> Steps:
        """Return the steps in which a batch is run, for an event loop."""


class ServiceQueue:
    """The calls of one service that wait in this worker, and its counters.

    `task`: its Celery task; `trace`: Celery's tracer of that; `chain`: its middleware.
    """

    def __init__(self, spec: Spec, task: Any, trace: Any, chain: Hooks) -> None:
        self.spec, self.task, self.trace, self.chain = spec, task, trace, chain
        self.waiting: deque[Call] = deque()  # oldest first; with priorities, those of the highest first
        self.later: set[Call] = set()  # held, neither waiting nor run: until their time, or until a server is back
        self.entered = False  # it is in the scheduler's ring
        self.running = 0  # batches of it that run in the event loop
        self.full = False  # no further batch may run
        self.since = 0.0  # when the oldest of `waiting` came, on the monotonic clock
        self.counts: Counter[str] = Counter()
        self.slowest = float("inf")  # s that its slowest batch took, of the last few; unknown before the first

    def put_by_priority(self, call: Any) -> None:
        """Put a call behind the waiting ones of its priority, ahead of lower ones."""
        place = len(self.waiting)
        while place and self.waiting[place - 1].priority < call.priority:
            place -= 1
        self.waiting.insert(place, call)
