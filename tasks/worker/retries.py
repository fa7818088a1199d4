"""What was with a worker that died: callers who wait send it again themselves; the rest runs again, up to a limit."""

from __future__ import annotations

from tasks.app.redelivery import Deliveries
from tasks.app.steps import Steps
from tasks.worker.middleware import Middleware
from tasks.worker.service_queue import Call, ServiceQueue


class CallerRetries(Middleware):
    """A call that its caller waits for on a connection of ours, delivered again: it may be what its worker died of.

    The caller decides, and counts.
    """

    def before_accept(self, queue: ServiceQueue, call: Call) -> str | None:
        """See Middleware."""
        return "the worker that held it died" if call.delivery.redelivered and call.direct else None


class DeliveryLimit(Middleware):
    """Calls that nobody waits for on a connection of ours: each is delivered `1 + retries` times at most."""

    def __init__(self, counts: Deliveries) -> None:
        self._counts = counts

    def around_run(self, queue: ServiceQueue, calls: list[Call]) -> Steps | None:
        """See Middleware."""
        limit = 1 + queue.spec.retries
        if not any(call.delivery.redelivered or (limit == 1 and not call.direct) for call in calls):
            return None
        again = [call.id if call.delivery.redelivered else None for call in calls]
        first = [None if call.delivery.redelivered or call.direct else call.id for call in calls]
        return self._counts.steps(queue.spec.name, limit, calls, again, first)
