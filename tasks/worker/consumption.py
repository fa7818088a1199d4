"""The consuming of a worker's queues, and the worker's entry in the run's directory of services."""

from __future__ import annotations

from typing import Any

import redis
from celery.utils.log import get_logger

from tasks.admin.registry import Directory
from tasks.brokers import Connection
from tasks.service import Spec
from tasks.topology import Topology
from tasks.worker.event_inbox import EventInbox
from tasks.worker.replies import Outbox
from tasks.worker.service_queue import ServiceQueue
from tasks.worker.timers import Timers

logger = get_logger(__name__)

PREFETCH = 64  # calls of each service that a worker may hold; more where its batches are larger
ENTER_EVERY = 3600.0  # s between renewals of this worker's entries in the run's Redis


class Consumption:
    """Declares and consumes the queues of services and events, on each new connection anew.

    `services`: the queues of this worker's services, by their names. `by_tag`: the same, by the tags of consumers.
    """

    def __init__(
        self,
        topology: Topology,
        directory: Directory,
        services: dict[str, ServiceQueue],
        events: EventInbox,
        timers: Timers,
    ) -> None:
        self._topology, self._directory, self._services = topology, directory, services
        self._events, self._timers = events, timers
        self.by_tag: dict[str, ServiceQueue] = {}

    def open(self, link: Connection) -> None:
        """Begin to consume. Raises ConfigurationError, redis.RedisError and one of GONE."""
        self.by_tag.clear()
        queues = [(waiting, self._declare(link, waiting.spec)) for waiting in self._services.values()]
        # Steps that need Redis come before calls are consumed: a call that is given back costs its caller a retry.
        self._enter()
        self._events.subscribe(link)
        for waiting, queue in queues:
            self._consume(link, queue, waiting.spec.name, waiting)
        for waiting in self._services.values():
            if waiting.spec.delays:
                due = self._topology.due_queue(waiting.spec.name, waiting.spec.priorities)
                link.declare(due)
                self._consume(link, due, f"due {waiting.spec.name}", waiting)
        self._timers.after(ENTER_EVERY, self._renew)

    def cancel(self, link: Connection) -> None:
        """Consume no more. Raises one of GONE."""
        for tag in (*self.by_tag, *self._events.tags):
            link.cancel(tag)

    def hand_back(self, outbox: Outbox) -> None:
        """Give back every call that is held. None of them has begun, so this uses up none of their deliveries."""
        for queue in self._services.values():
            for call in (*queue.waiting, *sorted(queue.later, key=lambda call: call.delivery.tag)):
                outbox.reject(call.delivery.tag, requeue=True)
            queue.waiting.clear()
            queue.later.clear()
        outbox.flush()

    def _consume(self, link: Connection, queue: Any, tag: str, waiting: ServiceQueue) -> None:
        self.by_tag[tag] = waiting
        link.consume(queue.name, tag, prefetch=_prefetch(waiting.spec))

    def _declare(self, link: Connection, spec: Spec) -> Any:
        queue = self._topology.service_queue(spec.name, spec.response, spec.bound, spec.priorities)
        link.declare(queue)
        if not spec.response:  # one-way calls have dead letters
            link.declare(self._topology.dead_queue(spec.name.partition(".")[0]))
        return queue

    def _enter(self) -> None:
        self._directory.enter(waiting.spec for waiting in self._services.values())

    def _renew(self) -> None:
        try:
            self._enter()
            self._events.renew()
            self._timers.after(ENTER_EVERY, self._renew)
        except redis.RedisError as error:
            logger.warning("services: what Redis holds of this worker was not renewed: %s", error)
            self._timers.again(self._renew)


def _prefetch(spec: Spec) -> int:
    """Return how many calls of a service a worker holds: those that run, and as many that follow them."""
    return 2 * spec.concurrency * spec.batch if spec.concurrency else max(PREFETCH, 2 * spec.batch)
