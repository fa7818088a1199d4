"""A subscription on RabbitMQ past kombu: the newest event of each name, long ones put together from their parts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from celery.utils.log import get_logger

from tasks import codec, frames
from tasks.broadcast import PARTS_KEPT, Assembler
from tasks.link import GONE, Link
from tasks.topology import Topology
from warren.errors import WireError

logger = get_logger(__name__)

KEPT_FOR = 0.5  # s after which an event is handed on although newer ones keep arriving
AGAIN_AFTER = 1.0  # s between tries to subscribe

Handler = Callable[[Any], None]


class Listener:
    """A thread with a connection and queues of its own that hands the newest event of each name to its handler.

    What comes while a handler runs waits, in its queue and on its way, for at most PARTS_KEPT messages each; of it the
    handler hears the newest. After a lost connection it subscribes anew and calls `on_connected`.
    """

    def __init__(
        self,
        app: Any,
        topology: Topology,
        handlers: Mapping[str, Handler],
        subscriber: str,
        on_connected: Callable[[], None] | None = None,
    ) -> None:
        self._app, self._topology, self._handlers, self._subscriber = app, topology, handlers, subscriber
        self._on_connected = on_connected
        self._stopping, self._subscribed = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"events-{subscriber}", daemon=True)

    def start(self, timeout: float = 30.0) -> Listener:
        """Start the thread and return once every queue is bound: what is fired from now on arrives."""
        self._thread.start()
        if not self._subscribed.wait(timeout):
            raise WireError(f"could not subscribe to {', '.join(self._handlers)} within {timeout:.0f} s")
        return self

    def stop(self) -> None:
        """Leave; the queues go with the connection."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5.0)

    def _run(self) -> None:
        while not self._stopping.is_set():
            link = None
            try:
                link = Link(self._app)
                for name in self._handlers:
                    queue = self._topology.event_queue(name, self._subscriber, length=PARTS_KEPT)(link.channel)
                    queue.declare()
                    link.consume(queue.name, name, prefetch=PARTS_KEPT)
                if self._on_connected is not None:
                    self._on_connected()
                self._subscribed.set()
                self._listen(link)
            except GONE as error:
                logger.warning("events: connection lost, subscribing anew (%s: %s)", type(error).__name__, error)
            except Exception:  # of whatever kind: a thread that ended would do so unseen
                logger.warning("events: subscribing anew", exc_info=True)
            finally:
                if link is not None:
                    link.close()
            self._stopping.wait(0.0 if self._stopping.is_set() else AGAIN_AFTER)

    def _listen(self, link: Link) -> None:
        assemblers = {name: Assembler() for name in self._handlers}
        newest: dict[str, bytes] = {}
        unacknowledged, kept_since = 0, 0.0
        while not self._stopping.is_set():
            deliveries = link.drain(0.0 if newest else None)
            for delivery in deliveries:
                body = assemblers[delivery.consumer].add(delivery)
                if body is not None:
                    kept_since = kept_since if newest else time.monotonic()
                    newest[delivery.consumer] = body
            unacknowledged += len(deliveries)
            if deliveries and (newest or unacknowledged >= PARTS_KEPT // 2):
                link.send(frames.ack(link.channel_id, deliveries[-1].tag, multiple=True))
                unacknowledged = 0
            if newest and (not deliveries or time.monotonic() - kept_since > KEPT_FOR):
                kept, newest = newest, {}
                for name, body in kept.items():
                    self._hear(name, body)

    def _hear(self, name: str, body: bytes) -> None:
        try:
            self._handlers[name](codec.decode(body))
        except Exception:
            logger.exception("the handler of event %r failed", name)
