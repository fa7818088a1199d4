"""Long events in parts: the broker stores a message whole before it forwards it, so one of several MiB is slow.

Every message of an event carries its sender, the event's number, its part's number and the number of parts. So a
subscriber whose queue was full knows what it lost, and drops an event of which a part is missing.

A subscriber that is slower than its sender gets something only if some event arrives whole. Therefore it acknowledges
parts at the end of an event, or else once WINDOW messages, as many as may be in flight, have come. The broker then
delivers the next WINDOW messages in a row. Wherever in an event they begin, another event is whole among them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from celery.utils.log import get_logger

from tasks import codec
from tasks.amqp import frames
from tasks.amqp.frames import CONTENT_ENCODING, CONTENT_TYPE, HEADERS, Delivery, short
from tasks.codec import claim_check, claim_stub
from tasks.codec.claim_check import ClaimStore
from tasks.service import Subscribed
from tasks.topology import EVENT_LENGTH
from warren.errors import CodecError

logger = get_logger(__name__)

WINDOW = EVENT_LENGTH  # messages in flight to a subscriber; as many wait in its queue
MOST_PARTS = WINDOW // 2  # parts of one event, at most
PART_BYTES = 1 << 20  # bytes; parts are longer where MOST_PARTS of these do not suffice
LONGEST_PART = 12 << 20  # bytes; RabbitMQ 4 refuses messages over 16 MiB
CLAIM_LASTS = 60.0  # s that a longer event can be fetched: a newer one has replaced it by then
WARN_EVERY = 1.0  # s between warnings about dropped events
SENDERS_KEPT = 64  # senders of which a subscriber remembers the last event

FROM, EVENT, PART, PARTS = "from", "event", "part", "parts"


def sendable(name: str, body: bytes, claims: ClaimStore | None) -> bytes:
    """Return `body`, or a claim check where MOST_PARTS of LONGEST_PART bytes do not hold it. Raises CodecError."""
    if len(body) > MOST_PARTS * LONGEST_PART:
        with claim_check.time_to_live(CLAIM_LASTS):
            stub = body if claims is None else claims.check_in(body)
        if not claim_stub.is_stub(stub):
            raise CodecError(
                f"event {name!r} has {len(body)} bytes and cannot be sent: over {MOST_PARTS * LONGEST_PART} it takes a "
                "claim store; make the app with create_app, with a claim_threshold below that"
            )
        return stub
    return body


def split(body: bytes, sender: str, number: int) -> Iterator[tuple[bytes, Any]]:
    """Yield the raw properties and the body of each message of event `number` of `sender`."""
    size = max(PART_BYTES, -(-len(body) // MOST_PARTS))
    count = max(1, -(-len(body) // size))
    view = memoryview(body)
    for index in range(count):
        headers = {FROM: sender, EVENT: number, PART: index, PARTS: count}
        yield properties(headers), view[index * size : (index + 1) * size] if count > 1 else body


def properties(headers: Mapping[str, Any]) -> bytes:
    """Write the raw properties of an event's message: kombu's own, with these headers."""
    fields = frames.table(headers)
    return b"".join(
        [
            (CONTENT_TYPE | CONTENT_ENCODING | HEADERS).to_bytes(2, "big"),
            short(codec.CONTENT_TYPE),
            short("binary"),
            len(fields).to_bytes(4, "big"),
            fields,
        ]
    )


class Assembler:
    """Puts the messages of one queue together to events, and says which of them may be acknowledged.

    `missed`: events that the queue dropped since it was bound. They are logged if the handler should get all events.
    """

    def __init__(self, on: Subscribed) -> None:
        self._on = on
        self._begun: dict[str, tuple[int, list[bytes]]] = {}  # sender -> its event in flight, the parts received so far
        self._last: dict[str, int] = {}  # sender -> its last event that was whole
        self._tags: list[int] = []
        self._at_end = False  # the last message was the end of an event, with no other in flight
        self.missed = self._reported = 0
        self.refused = 0  # messages that are not part of an event
        self._report_at = 0.0

    def add(self, delivery: Delivery) -> bytes | None:
        """Take in a message; return the body of the event that it completes, or None."""
        self._tags.append(delivery.tag)
        body = self._add(delivery)
        self._at_end = body is not None and not self._begun
        return body

    def used(self) -> list[int]:
        """Return the tags to acknowledge now."""
        if not self._at_end and not self.full:
            return []
        tags, self._tags = self._tags, []
        return tags

    @property
    def full(self) -> bool:
        """Return whether more may wait in the queue, since as many as may be in flight have come."""
        return len(self._tags) >= WINDOW

    def _add(self, delivery: Delivery) -> bytes | None:
        try:
            headers = frames.read_properties(delivery.properties).headers
            sender = headers.get(FROM)
            if sender is None:
                return delivery.body  # not sent by Warren
            number, index, count = numbers = [headers.get(name, -1) for name in (EVENT, PART, PARTS)]
            whole = all(type(one) is int for one in numbers) and 0 <= index < count <= MOST_PARTS
            if not whole or type(sender) is not str:
                raise frames.Malformed("its headers do not say which part of which event it is")
        except frames.Malformed as error:
            self.refused += 1
            logger.error("a message of event %r cannot be read: %s", self._on.event, error)
            return None
        last = self._last.get(sender)
        if last is not None and number <= last:
            return None  # sent twice, because the connection was lost before the broker confirmed it
        if count == 1:
            self._begun.pop(sender, None)
            return self._whole(sender, number, delivery.body)
        begun, parts = self._begun.get(sender, (None, []))
        if index == 0:
            parts = []
        elif begun != number or len(parts) != index:
            self._begun.pop(sender, None)  # a part is missing: the queue was full
            return None
        parts.append(delivery.body)
        if len(parts) < count:
            self._begun[sender] = (number, parts)
            _forget(self._begun)
            return None
        self._begun.pop(sender, None)
        return self._whole(sender, number, b"".join(parts))

    def _whole(self, sender: str, number: int, body: bytes) -> bytes:
        last = self._last.pop(sender, number - 1)
        self.missed += number - last - 1
        self._last[sender] = number
        _forget(self._last)
        if not self._on.latest and self.missed > self._reported and time.monotonic() >= self._report_at:
            logger.warning(
                "event %r: %d were dropped, %d in all, since over %d messages waited; make the handler faster or its "
                "bound larger",
                *(self._on.event, self.missed - self._reported, self.missed, self._on.bound),
            )
            self._reported, self._report_at = self.missed, time.monotonic() + WARN_EVERY
        return body


def _forget(senders: dict[str, Any]) -> None:
    while len(senders) > SENDERS_KEPT:
        senders.pop(next(iter(senders)))
