"""The commands of a connection, read from its frames: publish, acknowledge, reject."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from tasks.amqp import frames
from tasks.amqp.frames import Properties
from tasks.amqp.messages import DIRECT_REPLY
from tasks.amqp.parser import Content, Frame, Parser

FRAME_MAX = 131_072  # bytes, as RabbitMQ's default

_ACK, _REJECT = b"\x00\x3c\x00\x50", b"\x00\x3c\x00\x5a"
_TAG_AND_BIT = struct.Struct(">QB")


@dataclass
class Publish:
    """basic.publish with its message. `properties`: raw, from the property flags on."""

    channel: int
    exchange: str
    key: str
    mandatory: bool
    properties: bytes
    body: bytes

    @property
    def correlation_id(self) -> str:
        """Return the message's correlation id; "" where its properties cannot be read."""
        return _read(self.properties).correlation_id


@dataclass
class Ack:
    """basic.ack. `multiple`: of all messages up to `tag`."""

    tag: int
    multiple: bool


@dataclass
class Reject:
    """basic.reject."""

    tag: int
    requeue: bool


class Stream:
    """One stream of bytes to the broker. `stuck`: bytes that are not read while the broker is short of memory."""

    def __init__(self) -> None:
        self._parser = Parser(FRAME_MAX)
        self.stuck: list[bytes] = []

    def read(self, data: bytes) -> Iterator[Publish | Ack | Reject]:
        """Yield the commands that `data` completes."""
        for event in self._parser.feed(data):
            if isinstance(event, Content):
                exchange, at = _short(event.method, 6)
                key, at = _short(event.method, at)
                mandatory = bool(event.method[at] & 1)
                yield Publish(event.channel, exchange, key, mandatory, event.properties, event.body)
            elif isinstance(event, Frame) and event.payload[:4] in (_ACK, _REJECT):
                tag, bit = _TAG_AND_BIT.unpack_from(event.payload, 4)
                yield (Ack if event.payload[:4] == _ACK else Reject)(tag, bool(bit))


def publishes(data: bytes) -> bool:
    """Return whether a message is among these frames."""
    return any(isinstance(event, Content) for event in Parser(FRAME_MAX).feed(data))


def with_reply_to(raw: bytes, address: str) -> bytes:
    """Replace DIRECT_REPLY in the properties by the sender's address, as RabbitMQ does."""
    if _read(raw).reply_to != DIRECT_REPLY:
        return raw
    before, _, after = raw.rpartition(frames.short(DIRECT_REPLY))
    return before + frames.short(address) + after


def _short(data: bytes, at: int) -> tuple[str, int]:
    end = at + 1 + data[at]
    return data[at + 1 : end].decode(), end


def _read(raw: bytes) -> Properties:
    """Read the properties; return empty ones where they are malformed, which the receiver will find out."""
    try:
        return frames.read_properties(raw)
    except frames.Malformed:
        return Properties("", {}, "", "", "")
