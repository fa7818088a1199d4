"""The few AMQP 0-9-1 frames of a call, written and read as bytes: basic.publish, basic.deliver, basic.ack.

py-amqp does all else (see connection.py). It would build and read each message field by field, which costs more than
all other work of a small call. Here the parts that do not change between two calls are built once.
Section numbers are those of the AMQP 0-9-1 specification.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8  # frame types (4.2.3)
END = b"\xce"
DELIVER = b"\x00\x3c\x00\x3c"  # class 60 (basic), method 60
HEARTBEAT_FRAME = b"\x08\x00\x00\x00\x00\x00\x00\xce"
OVERHEAD = 8  # bytes of a frame around its payload

FRAME = struct.Struct(">BHI")  # type, channel, bytes of payload
_U16, _I32, _U32, _U64, _I64 = (struct.Struct(f">{code}") for code in "HiIQq")
_F32, _F64 = struct.Struct(">f"), struct.Struct(">d")
_ACK = struct.Struct(">BHIHHQBB")
_REJECT = struct.Struct(">BHIHHQBB")
_CONTENT = struct.Struct(">BHIHHQ")  # type, channel, bytes; class, weight, bytes of the body

# Property flags of class basic (4.2.6.1), in the order in which the values follow.
CONTENT_TYPE, CONTENT_ENCODING, HEADERS, DELIVERY_MODE = 1 << 15, 1 << 14, 1 << 13, 1 << 12
PRIORITY, CORRELATION_ID, REPLY_TO, EXPIRATION = 1 << 11, 1 << 10, 1 << 9, 1 << 8
MESSAGE_ID, TIMESTAMP, TYPE, USER_ID, APP_ID, CLUSTER_ID = 1 << 7, 1 << 6, 1 << 5, 1 << 4, 1 << 3, 1 << 2


class Delivery(NamedTuple):
    """One delivered message. `properties` are the raw bytes from the property flags on."""

    consumer: str
    tag: int
    redelivered: bool
    properties: bytes
    body: bytes


class Properties(NamedTuple):
    """The properties of a message that receivers use; absent ones are empty."""

    content_type: str
    headers: dict[str, Any]
    correlation_id: str
    reply_to: str
    type: str
    priority: int = 0


def short(text: str) -> bytes:
    """Write a short string: a byte with the length, then at most 255 bytes of UTF-8."""
    raw = text.encode()
    if len(raw) > 255:
        raise ValueError(f"{text[:60]!r}... has {len(raw)} bytes; an AMQP short string has 255 at most")
    return bytes((len(raw),)) + raw


def table(values: Mapping[str, Any]) -> bytes:
    """Write the fields of a table without its length: None, bool, int, float, str, lists and tables of these."""
    return b"".join(short(key) + _field(value) for key, value in values.items())


def _field(value: Any) -> bytes:
    if value is None:
        return b"V"
    if isinstance(value, bool):
        return b"t\x01" if value else b"t\x00"
    if isinstance(value, int):
        return b"l" + _I64.pack(value)
    if isinstance(value, float):
        return b"d" + _F64.pack(value)
    if isinstance(value, str):
        raw = value.encode()
        return b"S" + _U32.pack(len(raw)) + raw
    if isinstance(value, (list, tuple)):
        items = b"".join(_field(item) for item in value)
        return b"A" + _U32.pack(len(items)) + items
    if isinstance(value, Mapping):
        fields = table(value)
        return b"F" + _U32.pack(len(fields)) + fields
    raise TypeError(f"a header of {type(value)} cannot be sent: {value!r:.80}")


def publish_method(channel: int, exchange: str, routing_key: str, mandatory: bool = False) -> bytes:
    """Write the method frame of a basic.publish."""
    payload = b"\x00\x3c\x00\x28\x00\x00" + short(exchange) + short(routing_key) + (b"\x01" if mandatory else b"\x00")
    return FRAME.pack(METHOD, channel, len(payload)) + payload + END


def content(channel: int, properties: bytes, body: bytes, frame_max: int) -> list[bytes]:
    """Write the header and body frames of a message, to be joined; `properties` from the property flags on."""
    parts = [_CONTENT.pack(HEADER, channel, 12 + len(properties), 60, 0, len(body)), properties, END]
    if len(body) <= frame_max - OVERHEAD:
        if body:
            parts += (FRAME.pack(BODY, channel, len(body)), body, END)
        return parts
    view, step = memoryview(body), frame_max - OVERHEAD
    for start in range(0, len(body), step):
        part = view[start : start + step]
        parts += (FRAME.pack(BODY, channel, len(part)), part, END)  # type: ignore[arg-type] # joined by bytes.join
    return parts


def ack(channel: int, tag: int, multiple: bool = False) -> bytes:
    """Acknowledge message `tag`, or all up to it."""
    return _ACK.pack(METHOD, channel, 13, 60, 80, tag, multiple, 0xCE)


def acks(channel: int, tags: list[int], held: Mapping[int, Any]) -> list[bytes]:
    """Acknowledge `tags` (sorted here), all of them delivered and none twice, in as few frames as possible.

    `held`: the tags that must not be acknowledged yet, in order.
    """
    tags.sort()
    floor = next(iter(held), tags[-1] + 1)
    below = [tag for tag in tags if tag < floor]
    # Every lower tag has been acknowledged or refused: nothing that is held lies below.
    frames = [ack(channel, below[-1], multiple=len(below) > 1)] if below else []
    return frames + [ack(channel, tag) for tag in tags[len(below) :]]


def reject(channel: int, tag: int, requeue: bool) -> bytes:
    """Refuse message `tag`: back to its queue, or on to the dead-letter exchange."""
    return _REJECT.pack(METHOD, channel, 13, 60, 90, tag, requeue, 0xCE)


class Malformed(ValueError):
    """Raised for bytes that are not AMQP properties; the receiver refuses the message and keeps the connection."""


def read_properties(raw: bytes) -> Properties:
    """Read a message's properties. Raises Malformed."""
    try:
        return _read_properties(raw)
    except (IndexError, struct.error, UnicodeDecodeError, RecursionError) as error:
        raise Malformed(f"unreadable message properties: {error}") from error


def _read_properties(raw: bytes) -> Properties:
    (flags,) = _U16.unpack_from(raw, 0)
    position = 2
    content_type = correlation_id = reply_to = kind = ""
    headers: dict[str, Any] = {}
    if flags & CONTENT_TYPE:
        content_type, position = _short_at(raw, position)
    if flags & CONTENT_ENCODING:
        position += 1 + raw[position]
    if flags & HEADERS:
        (size,) = _U32.unpack_from(raw, position)
        headers = _table_at(raw, position + 4, position + 4 + size)
        position += 4 + size
    if flags & DELIVERY_MODE:
        position += 1
    priority = 0
    if flags & PRIORITY:
        priority = raw[position]
        position += 1
    if flags & CORRELATION_ID:
        correlation_id, position = _short_at(raw, position)
    if flags & REPLY_TO:
        reply_to, position = _short_at(raw, position)
    if flags & TYPE:
        if flags & EXPIRATION:
            position += 1 + raw[position]
        if flags & MESSAGE_ID:
            position += 1 + raw[position]
        if flags & TIMESTAMP:
            position += 8
        kind, position = _short_at(raw, position)
    return Properties(content_type, headers, correlation_id, reply_to, kind, priority)


def _short_at(raw: bytes, position: int) -> tuple[str, int]:
    end = position + 1 + raw[position]
    return raw[position + 1 : end].decode(), end


def _table_at(raw: bytes, position: int, end: int) -> dict[str, Any]:
    values: dict[str, Any] = {}
    while position < end:
        size = raw[position]
        key = raw[position + 1 : position + 1 + size].decode()
        position += 1 + size
        code = raw[position]
        # The two types of nearly every header first, before the general case.
        if code == 0x53:  # S
            (size,) = _U32.unpack_from(raw, position + 1)
            values[key] = raw[position + 5 : position + 5 + size].decode()
            position += 5 + size
        elif code == 0x56:  # V
            values[key] = None
            position += 1
        else:
            values[key], position = _field_at(raw, position)
    return values


_FIXED = {
    ord("t"): struct.Struct(">?"),
    ord("b"): struct.Struct(">b"),
    ord("B"): struct.Struct(">B"),
    ord("s"): struct.Struct(">h"),
    ord("U"): struct.Struct(">h"),
    ord("u"): _U16,
    ord("I"): _I32,
    ord("i"): _U32,
    ord("l"): _I64,
    ord("L"): _I64,
    ord("T"): _U64,
    ord("f"): _F32,
    ord("d"): _F64,
}


def _field_at(raw: bytes, position: int) -> tuple[Any, int]:
    code, position = raw[position], position + 1
    if fixed := _FIXED.get(code):
        return fixed.unpack_from(raw, position)[0], position + fixed.size
    if code == 0x56:
        return None, position
    if code in b"SxFA":
        (size,) = _U32.unpack_from(raw, position)
        position, end = position + 4, position + 4 + size
        if end > len(raw):
            raise Malformed(f"a header field claims {size} bytes and has {len(raw) - position}")
        if code == 0x53:
            return raw[position:end].decode(), end
        if code == 0x78:
            return raw[position:end], end
        if code == 0x46:
            return _table_at(raw, position, end), end
        items = []
        while position < end:
            item, position = _field_at(raw, position)
            items.append(item)
        return items, end
    raise Malformed(f"a header field has the unknown type {bytes((code,))!r}")
