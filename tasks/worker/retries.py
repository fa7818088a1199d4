"""Calls held by a worker that died: the broker delivers them again, up to a limit."""

from __future__ import annotations

from tasks.app.redelivery import Deliveries
from tasks.app.steps import Steps
from tasks.worker.middleware import Middleware
from tasks.worker.service_queue import Call, ServiceQueue


class DeliveryLimit(Middleware):
    """Delivers every call `1 + retries` times at most, counting only deliveries whose run was begun.

    So calls that a killed worker merely held, beside the call that killed it, lose nothing.
    """

    def __init__(self, counts: Deliveries) -> None:
        self._counts = counts

    def around_run(self, queue: ServiceQueue, calls: list[Call]) -> Steps | None:
        """See Middleware."""
        return self._counts.steps(queue.spec.name, 1 + queue.spec.retries, calls, calls)
