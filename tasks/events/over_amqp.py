"""Events on RabbitMQ without kombu: sent without a copy, received with one, long ones in parts."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from tasks import brokers
from tasks.amqp import frames
from tasks.amqp.stream import SEND_TIMEOUT, TICK
from tasks.brokers import GONE, Connection, LinkLost
from tasks.events.chunks import WINDOW, Assembler, sendable, split
from tasks.service import Subscribed
from tasks.topology import EVENT_LENGTH, Topology

Keep = Callable[[str, bytes], None]
PAUSES = (0.05, 0.25, 0.45, 0.65, 0.85)  # s between tries to send an event
MIDWAY_FOR = 0.5  # s to wait for the rest of a message before it counts as nothing


def waiting_messages(on: Subscribed) -> int:
    """Return the length of an event handler's queue, in messages."""
    return EVENT_LENGTH if on.latest else max(on.bound, EVENT_LENGTH)


class Sender:
    """A connection that fires events; each has arrived at the broker when `send` returns. For any thread."""

    def __init__(self, app: Any, topology: Topology) -> None:
        self._app, self._topology = app, topology
        self._link: Connection | None = None
        self._declared: set[str] = set()
        self._name, self._number = "", 0
        self._sent, self._unconfirmed = 0, set[int]()
        self._pid = 0
        self._inherited: list[Connection] = []
        self._lock = threading.Lock()

    def send(self, name: str, body: bytes) -> None:
        """Send a packed payload to all present subscribers of `name`.

        Raises one of GONE if the broker stays away, or takes no messages, for some seconds: SEND_TIMEOUT for this event
        and as long for those that other threads are sending.
        """
        body = sendable(name, body, getattr(self._app, "warren_claims", None))
        if not self._lock.acquire(timeout=SEND_TIMEOUT):
            raise LinkLost(f"other events have waited for the broker for {SEND_TIMEOUT:.0f} s")
        try:
            self._number += 1
            self._try(name, body)
        finally:
            self._lock.release()

    def _try(self, name: str, body: bytes) -> None:
        """Publish, and try again where the connection breaks."""
        limit = time.monotonic() + SEND_TIMEOUT
        for pause in (*PAUSES, None):
            try:
                self._publish(name, body)
                return
            except GONE:
                if self._link is not None:
                    self._link.discard()  # a broker that says nothing does not answer connection.close either
                self._drop()
                if pause is None or time.monotonic() + pause > limit:
                    raise
            time.sleep(pause)

    def close(self) -> None:
        """Drop the connection; the next event makes a new one."""
        with self._lock:
            self._drop()

    def _publish(self, name: str, body: bytes) -> None:
        link = self._ready()
        exchange = self._topology.event(name)
        if name not in self._declared:
            link.declare(exchange)
            self._declared.add(name)
        self._wait(lambda: not link.blocked, link)
        method = frames.publish_method(self._channel_id, exchange.name, "")
        for properties, part in split(body, self._name, self._number):
            link.send_parts([method, *frames.content(self._channel_id, properties, part, link.frame_max)])
            self._sent += 1
            self._unconfirmed.add(self._sent)
        self._wait(lambda: not self._unconfirmed, link)

    @staticmethod
    def _wait(done: Callable[[], bool], link: Connection) -> None:
        """Read until `done()`. Raises LinkLost after SEND_TIMEOUT."""
        limit = time.monotonic() + SEND_TIMEOUT
        while not done():
            if time.monotonic() > limit:
                why = f"takes no messages: {link.blocked}" if link.blocked else "confirmed nothing"
                raise LinkLost(f"the broker {why}, for {SEND_TIMEOUT:g} s")
            link.drain(min(TICK, SEND_TIMEOUT))

    def _ready(self) -> Connection:
        # After a fork the link is the parent's, and would be closed there if garbage collection ended it here.
        if self._pid != os.getpid():
            self._inherited += [self._link] if self._link is not None else []
            self._link, self._pid = None, os.getpid()
            self._name, self._number = os.urandom(8).hex(), 1
        link = self._link
        if link is not None and link.alive:
            link.drain(0.0)  # has the broker closed it meanwhile?
            return link
        self._drop()
        self._link = link = brokers.of(self._app).connect()
        self._channel_id = link.confirm(self._confirmed)
        return link

    def _confirmed(self, tag: int, multiple: bool, _taken: bool) -> None:
        # A refusal settles too: only the queue of a subscriber that has gone refuses.
        self._unconfirmed -= {sent for sent in self._unconfirmed if sent <= tag} if multiple else {tag}

    def _drop(self) -> None:
        if self._link is not None:
            self._link.close()
        self._link, self._sent = None, 0
        self._unconfirmed.clear()
        self._declared.clear()


class Source:
    """The queues of one subscription on a connection of its own. `subscribed`: consumer tag -> what it subscribes to.

    `keep` is called with the tag and the body of each event that has come whole.
    """

    def __init__(
        self, app: Any, topology: Topology, subscribed: Mapping[str, Subscribed], subscriber: str, keep: Keep
    ) -> None:
        self._keep = keep
        self._assemblers = {tag: Assembler(on) for tag, on in subscribed.items()}
        self._held: dict[int, None] = {}  # delivery tags that are not to be acknowledged yet, in order
        self.full = False  # all messages that may be in flight had come, so more may wait in a queue
        self._link = link = brokers.of(app).connect()
        try:
            for tag, on in subscribed.items():
                queue = topology.event_queue(on.event, subscriber, waiting_messages(on))
                link.declare(queue)
                link.consume(queue.name, tag, prefetch=WINDOW)
        except BaseException:
            link.close()
            raise

    def receive(self, timeout: float | None) -> bool:
        """Take in what arrives, waiting up to `timeout` s (None: a moment) for it; return False when nothing has."""
        deliveries = self._link.drain(timeout)
        until = time.monotonic() + MIDWAY_FOR
        while not deliveries and self._link.midway and time.monotonic() < until:
            deliveries = self._link.drain()  # a long message comes in pieces, and each wakes the reader
        whole: list[tuple[str, bytes]] = []
        used: list[int] = []
        self.full = False
        for delivery in deliveries:
            assembler = self._assemblers[delivery.consumer]
            self._held[delivery.tag] = None
            body = assembler.add(delivery)
            if body is not None:
                whole.append((delivery.consumer, body))
            self.full = self.full or assembler.full
        for assembler in self._assemblers.values():
            used += assembler.used()
        if used:
            for tag in used:
                del self._held[tag]
            self._link.send(b"".join(frames.acks(self._link.channel_id, used, self._held)))
        for name, body in whole:
            self._keep(name, body)
        return bool(deliveries)

    def close(self) -> None:
        """Unsubscribe; the queues go with the connection."""
        self._link.close()
