"""Events on RabbitMQ past kombu: long payloads travel in parts, written from where they lie, read with one copy.

A message of several MiB is stored whole before it is forwarded; parts of 1 MiB are under way on both sides at once. The
parts of one set bear its id, their number and their count; a subscriber whose queue dropped one drops the set.
"""

from __future__ import annotations

import os
import threading
from typing import Any

from celery.utils.log import get_logger

from tasks import claims, codec, frames
from tasks.frames import CONTENT_ENCODING, CONTENT_TYPE, HEADERS, Delivery, short
from tasks.link import GONE, Link
from tasks.packing import pack
from tasks.topology import Topology
from warren.errors import BrokerError

logger = get_logger(__name__)

PART_BYTES = 1 << 20
PARTS_KEPT = 64  # that wait in a subscriber's queue: one whole set at least, of up to 48 parts
MOST_PARTS = 48
LONGEST_PART = 12 << 20  # bytes; RabbitMQ 4 refuses messages over 16 MiB
SETS_KEPT = 4  # incomplete ones; there is one a publisher that fires at the moment


class Broadcaster:
    """Fires events over a connection of its own. Safe to use from any thread."""

    def __init__(self, app: Any, topology: Topology) -> None:
        self._app, self._topology = app, topology
        self._link: Link | None = None
        self._declared: set[str] = set()
        self._lock = threading.Lock()

    def fire(self, name: str, payload: Any = None) -> None:
        """Send `payload` to every present subscriber of `name`.

        Raises CodecError for what cannot be encoded, BrokerError when the broker is away, a second try included.
        """
        body = pack(payload)
        part = max(PART_BYTES, -(-len(body) // MOST_PARTS))
        if part > LONGEST_PART:
            body, part = claims.check_in(body), LONGEST_PART
        with self._lock:
            for attempt in (1, 2):
                try:
                    self._send(name, body, part)
                    return
                except GONE as error:
                    self.close()
                    if attempt == 2:
                        raise BrokerError(f"event {name!r} was not sent, since the broker is away: {error}") from error

    def _send(self, name: str, body: bytes, part: int) -> None:
        link = self._ready()
        exchange = self._topology.event(name)
        if name not in self._declared:
            exchange(link.channel).declare()
            self._declared.add(name)
        method = frames.publish_method(link.channel_id, exchange.name, "")
        if len(body) <= part:
            link.send(b"".join([method, *frames.content(link.channel_id, _properties(b""), body, link.frame_max)]))
            return
        view, count, mark = memoryview(body), -(-len(body) // part), os.urandom(8).hex()
        for index in range(count):
            headers = frames.table({"set": mark, "part": index, "parts": count})
            piece: Any = view[index * part : (index + 1) * part]
            link.send_parts([method, *frames.content(link.channel_id, _properties(headers), piece, link.frame_max)])

    def _ready(self) -> Link:
        link = self._link
        if link is not None and link.alive:
            link.drain(0.0)  # has the broker closed it meanwhile?
            return link
        self.close()
        self._link = link = Link(self._app)
        return link

    def close(self) -> None:
        """Drop the connection; the next event makes a new one."""
        if self._link is not None:
            self._link.close()
        self._link = None
        self._declared.clear()


class Assembler:
    """Puts the parts of events together again; one a subscription."""

    def __init__(self) -> None:
        self._sets: dict[str, list[bytes]] = {}

    def add(self, delivery: Delivery) -> bytes | None:
        """The body of the event that `delivery` completes, or None."""
        properties = frames.read_properties(delivery.properties)
        mark = properties.headers.get("set")
        if mark is None:
            return delivery.body
        index, count = properties.headers["part"], properties.headers["parts"]
        parts = self._sets.get(mark)
        if index == 0:
            parts = self._sets[mark] = []
            while len(self._sets) > SETS_KEPT:
                self._sets.pop(next(iter(self._sets)))
        if parts is None or len(parts) != index:
            self._sets.pop(mark, None)  # a part is missing: the queue was full
            return None
        parts.append(delivery.body)
        if len(parts) < count:
            return None
        return b"".join(self._sets.pop(mark))


def _properties(headers: bytes) -> bytes:
    """Raw properties of an event's message."""
    flags = CONTENT_TYPE | CONTENT_ENCODING | (HEADERS if headers else 0)
    sized = len(headers).to_bytes(4, "big") + headers if headers else b""
    return flags.to_bytes(2, "big") + short(codec.CONTENT_TYPE) + short("binary") + sized
