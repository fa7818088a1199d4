"""Notices of the broker besides deliveries: confirms, returned messages, cancelled consumers, a lack of memory."""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress

from celery.utils.log import get_logger

from tasks.amqp import frames
from tasks.amqp.parser import Content, Event, Frame

logger = get_logger(__name__)

ACK, NACK, CANCEL, RETURN = b"\x00\x3c\x00\x50", b"\x00\x3c\x00\x78", b"\x00\x3c\x00\x1e", b"\x00\x3c\x00\x32"
BLOCKED, UNBLOCKED = b"\x00\x0a\x00\x3c", b"\x00\x0a\x00\x3d"
HARMLESS = (ACK, NACK, BLOCKED, UNBLOCKED)  # methods that never end anything
_CONFIRMED = struct.Struct(">QB")

Settled = Callable[[int, bool, bool], None]


class Notices:
    """Deals with notices. `on_blocked` gets the reason why the broker takes no messages, "" when it does again.

    `lost` makes the error of a connection that cannot be used any more.
    """

    def __init__(self, on_blocked: Callable[[str], None], lost: Callable[[str], Exception]) -> None:
        self._on_blocked, self._lost = on_blocked, lost
        self.settled: dict[int, Settled] = {}  # channel in confirm mode -> callback for its confirms
        self.returned: Callable[[str], None] = lambda _: None

    def take(self, event: Frame | Content) -> bool:
        """Deal with `event`; return False for one that is py-amqp's. Raises LinkLost for a cancelled consumer."""
        if isinstance(event, Content):
            if event.method[:4] == RETURN:
                with suppress(frames.Malformed):
                    self.returned(frames.read_properties(event.properties).correlation_id)
            return True
        method = event.payload[:4]
        if event.kind == frames.HEARTBEAT:
            return True
        if method in (ACK, NACK):
            number, bits = _CONFIRMED.unpack_from(event.payload, 4)
            if settled := self.settled.get(event.channel):
                settled(number, bool(bits & 1), method == ACK)
            return True
        if method == CANCEL:
            raise self._lost(
                f"the broker cancelled consumer {_short_text(event)}: its queue was deleted, or moved to another node"
            )
        if method == BLOCKED:
            reason = _short_text(event) or "no reason given"
            self._on_blocked(reason)
            logger.warning("the broker takes no messages at the moment: %s", reason)
            return True
        if method == UNBLOCKED:
            self._on_blocked("")
            logger.warning("the broker takes messages again")
            return True
        return False


def _short_text(event: Frame) -> str:
    return event.payload[5 : 5 + event.payload[4]].decode(errors="replace")


def may_be_the_end(event: Event) -> bool:
    """Return whether `event` may make `take` raise: the broker ends a consumer, the channel or the connection."""
    return isinstance(event, Frame) and event.kind == frames.METHOD and event.payload[:4] not in HARMLESS


def settles(event: Event) -> bool:
    """Return whether `take` passes `event` on to callers' code: a confirm, or a returned message."""
    return isinstance(event, Content) or (isinstance(event, Frame) and event.payload[:4] in (ACK, NACK))
