"""The events that the workers of one process handle, on the connection of their services and in the same thread."""

from __future__ import annotations

import inspect
import time
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any

import xxhash
from celery.utils.log import get_logger

from tasks import codec
from tasks.amqp.frames import Delivery
from tasks.app.outcome import ENDS_WORKER, failed
from tasks.brokers import Connection
from tasks.events.chunks import WINDOW, Assembler
from tasks.events.over_amqp import waiting_messages
from tasks.events.retained import Retained
from tasks.service import Subscribed, Worker, handlers_of, role_of
from tasks.topology import Topology
from tasks.worker.async_services import AsyncServices
from tasks.worker.replies import Outbox

logger = get_logger(__name__)

TAG = "event:"  # consumer tags of events begin with this


class Handler:
    """One event handler of one worker."""

    def __init__(self, method: Any, on: Subscribed) -> None:
        self.method, self.on = method, on
        self.assembler = Assembler(on)
        self.last: int | None = None  # digest of the newest payload that it was given
        self.tags: list[int] = []  # delivery tags to acknowledge as soon as no event waits
        # For an `async def` handler, which runs one event at a time:
        self.is_async = inspect.iscoroutinefunction(method)
        self.running = False
        self.waiting: deque[bytes] = deque()


class EventInbox:
    """Subscribes the handlers of `workers` and calls them. `busy`: s spent in handlers."""

    def __init__(self, topology: Topology, retained: Retained, workers: Sequence[Worker]) -> None:
        self._topology, self._retained = topology, retained
        self._handlers = {
            f"{TAG}{role_of(worker)}.{method}": Handler(getattr(worker, method), on)
            for worker in workers
            for method, on in handlers_of(worker).items()
        }
        self.busy = 0.0
        self._async: AsyncServices | None = None
        self._outbox: Outbox | None = None

    @property
    def has_async(self) -> bool:
        """Return whether a handler is `async def`."""
        return any(handler.is_async for handler in self._handlers.values())

    def use(self, services: AsyncServices) -> None:
        """Run `async def` handlers by `services`, and the others in turns with them."""
        self._async = services
        for handler in self._handlers.values():
            if not handler.is_async:
                handler.method = services.turn.taken_by(handler.method)

    @property
    def tags(self) -> list[str]:
        """Return the consumer tags of the handlers' queues."""
        return list(self._handlers)

    def subscribe(self, link: Connection) -> None:
        """Bind and consume a new queue per handler, then give each what was fired before. Raises redis.RedisError."""
        for tag, handler in self._handlers.items():
            on = handler.on
            queue = self._topology.event_queue(on.event, tag.removeprefix(TAG), waiting_messages(on))
            link.declare(queue)
            link.consume(queue.name, tag, prefetch=WINDOW)
            handler.assembler, handler.tags = Assembler(on), []
        self._catch_up()

    def _catch_up(self) -> None:
        """Hand out events fired before the queues were bound, but none that came before the connection was lost."""
        wanted = [handler for handler in self._handlers.values() if handler.on.retained]
        self._retained.subscribe(handler.on.event for handler in wanted)
        for handler in wanted:
            body = self._retained.newest(handler.on.event)
            if body is not None and xxhash.xxh3_64_intdigest(body) != handler.last:
                self._handle(handler, body)

    def renew(self) -> None:
        """Keep the newest of the events retained for another while. Raises redis.RedisError."""
        self._retained.subscribe(handler.on.event for handler in self._handlers.values() if handler.on.retained)

    def take(self, deliveries: Sequence[Delivery], outbox: Outbox) -> None:
        """Put messages together into events, and call the handlers of whole ones."""
        self._outbox = outbox
        newest: dict[Handler, bytes] = {}
        for delivery in deliveries:
            handler = self._handlers[delivery.consumer]
            body = handler.assembler.add(delivery)
            handler.tags += handler.assembler.used()
            if not handler.waiting:
                self._acknowledge(handler)
            if body is not None and handler.on.latest:
                newest[handler] = body
            elif body is not None:
                self._handle(handler, body)
        for handler, body in newest.items():
            self._handle(handler, body)

    def _acknowledge(self, handler: Handler) -> None:
        if self._outbox is not None:
            for tag in handler.tags:
                self._outbox.ack(tag)
        handler.tags.clear()

    def _handle(self, handler: Handler, body: bytes) -> None:
        if handler.on.retained:
            handler.last = xxhash.xxh3_64_intdigest(body)
        if handler.is_async:
            if handler.on.latest:
                handler.waiting.clear()
            handler.waiting.append(body)
            self._begin(handler)
            return
        started = time.monotonic()
        try:
            handler.method(codec.decode(body))
        except ENDS_WORKER:
            raise
        except BaseException as error:
            logger.error("the handler of event %r failed\n%s", handler.on.event, failed(error).traceback)
        self.busy += time.monotonic() - started

    def _begin(self, handler: Handler) -> None:
        """Give an `async def` handler its next event; events that it has not had are unacknowledged, and so bounded."""
        while handler.waiting and not handler.running and self._async is not None:
            body = handler.waiting.popleft()
            if not handler.waiting:
                self._acknowledge(handler)
            try:
                payload = codec.decode(body)
            except Exception as error:
                logger.error("event %r cannot be read: %s", handler.on.event, error)
                continue
            handler.running = True
            self._async.handle(handler.on.event, handler.method, payload, partial(self._ended, handler))

    def _ended(self, handler: Handler) -> None:
        handler.running = False
        self._begin(handler)
