"""Bytes of one AMQP connection in, deliveries and other frames out. It has no socket: the caller feeds it.

A content (a method that carries a message, its header frame, its body frames; AMQP 0-9-1, 2.3.5.2) becomes one event
when it is whole, also where the frames of several channels alternate. Nearly every message arrives in one piece and is
read in place at once; the others are put together frame by frame.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from tasks.amqp.frames import BODY, DELIVER, FRAME, HEADER, HEARTBEAT, METHOD, OVERHEAD, Delivery

LONGEST_BODY = 512 << 20  # bytes; no RabbitMQ lets a longer message pass
LONG = 1 << 16  # bytes from which a message is read into its final place, instead of being joined from pieces

_END = 0xCE
_PUBLISH, _RETURN, _GET_OK = b"\x00\x3c\x00\x28", b"\x00\x3c\x00\x32", b"\x00\x3c\x00\x47"
_WITH_CONTENT = frozenset((_PUBLISH, _RETURN, DELIVER, _GET_OK))
_KINDS = frozenset((METHOD, HEADER, BODY, HEARTBEAT))
_BASIC = b"\x00\x3c\x00\x00"  # class 60, weight 0: how every content header begins (2.3.5.2)
_BODY_BYTES = struct.Struct(">Q")
_TAG = struct.Struct(">Q?")
_LEAST_HEADER = 14  # bytes of a content header: class, weight, size of the body, property flags


class FrameError(ValueError):
    """Raised for bytes that AMQP does not allow there. The connection cannot be read any further."""


class Frame(NamedTuple):
    """A method without content, or a heartbeat."""

    kind: int
    channel: int
    payload: bytes


class Content(NamedTuple):
    """A message that is no delivery: published (what a broker reads) or returned. `method`: that frame's payload."""

    channel: int
    method: bytes
    properties: bytes
    body: bytes


Event = Delivery | Frame | Content


class Parser:
    """The reading end of one connection. `frame_max`: bytes, as agreed with the other side when it was opened."""

    def __init__(self, frame_max: int) -> None:
        self._frame_max = frame_max
        self._data: bytes | bytearray = b""
        self._position = 0  # bytes of _data that have become events
        self._need = 0  # bytes from _position on without which nothing more can be read; 0 where that is not known
        self._room: bytearray | None = None  # a long message on its way, `_filled` bytes of which are there
        self._filled = 0
        self._open: dict[
            int, _PartialContent
        ] = {}  # channel -> the content on its way there, where it is not in one piece

    @property
    def midway(self) -> bool:
        """Return whether a frame or message has arrived in part."""
        return self._room is not None or self._position < len(self._data) or bool(self._open)

    def feed(self, data: bytes) -> list[Event]:
        """Take in bytes; return the events that they complete, in order. Raises FrameError."""
        if self._room is not None:
            return self._feed_room(data)
        if self._position < len(self._data):
            data = bytes(self._data[self._position :]) + data
        self._data, self._position = data, 0
        if len(data) < self._need:
            return []
        events: list[Event] = []
        self._parse(events)
        return events

    def room(self) -> memoryview | None:
        """Return the buffer for the next bytes of a long message, to be followed by `filled`; None: `feed` them."""
        if self._room is None:
            begun = len(self._data) - self._position
            if self._need < LONG or begun >= self._need:
                return None
            self._room, self._filled = bytearray(self._need), begun
            self._room[:begun] = self._data[self._position :]
            self._data, self._position = b"", 0
        return memoryview(self._room)[self._filled :]

    def filled(self, count: int) -> list[Event]:
        """Take in `count` bytes that were written to `room()`; return the events they complete. Raises FrameError."""
        assert self._room is not None
        self._filled += count
        events: list[Event] = []
        if self._filled == len(self._room):
            self._data, self._position, self._room = self._room, 0, None
            self._parse(events)
        return events

    def _feed_room(self, data: bytes) -> list[Event]:
        assert self._room is not None
        count = min(len(data), len(self._room) - self._filled)
        self._room[self._filled : self._filled + count] = data[:count]
        events = self.filled(count)
        return events + self.feed(data[count:]) if count < len(data) else events

    def _parse(self, events: list[Event]) -> None:
        data, position = self._data, self._position
        end = len(data)
        self._need = 0
        while end - position >= OVERHEAD:
            kind, channel, size = FRAME.unpack_from(data, position)
            after = position + OVERHEAD + size
            if kind not in _KINDS or OVERHEAD + size > self._frame_max:
                raise FrameError(
                    f"a frame of type {kind} with {size} bytes; types are 1, 2, 3 and 8, and {self._frame_max} bytes "
                    "are the most that was agreed on"
                )
            if after > end:
                self._need = after - position
                break
            if data[after - 1] != _END:
                raise FrameError(f"a frame of type {kind} ends with {data[after - 1]:#04x} instead of 0xce (4.2.3)")
            if kind == METHOD and data[position + 7 : position + 11] == DELIVER and channel not in self._open:
                done = self._read_whole(data, position, after, end, channel, events)
                if done == 0:
                    break
                if done > 0:
                    position = done
                    continue
            self._read_frame(kind, channel, bytes(data[position + 7 : after - 1]), events)
            position = after
        self._position = position

    def _read_whole(
        self, data: bytes | bytearray, start: int, header: int, end: int, channel: int, events: list[Event]
    ) -> int:
        """Read in place the delivery that begins at `start`, and should have its header frame at `header`.

        Returns the position after it; 0 while it is incomplete, -1 where its frames are not in one piece.
        """
        if end - header < FRAME.size:
            self._need = header - start + FRAME.size
            return 0
        kind, of, size = FRAME.unpack_from(data, header)
        if kind != HEADER or of != channel or not _LEAST_HEADER <= size <= self._frame_max - OVERHEAD:
            return -1  # another channel's, or wrong: `_read_frame` finds out
        if end - header < OVERHEAD + _LEAST_HEADER:
            self._need = header - start + OVERHEAD + size
            return 0
        if data[header + 7 : header + 11] != _BASIC:
            return -1
        (length,) = _BODY_BYTES.unpack_from(data, header + 11)
        position: int = header + OVERHEAD + size
        pieces = -(-length // (self._frame_max - OVERHEAD))
        if length > LONGEST_BODY:
            return -1
        if position + length + pieces * OVERHEAD > end:
            self._need = position - start + length + pieces * OVERHEAD
            return 0
        if data[position - 1] != _END:
            return -1
        if pieces == 1:
            kind, of, part = FRAME.unpack_from(data, position)
            if kind != BODY or of != channel or part != length or data[position + 7 + length] != _END:
                return -1
            body = bytes(data[position + 7 : position + 7 + length])
            position += OVERHEAD + length
        else:
            view, parts = memoryview(data), []
            while length > 0:
                kind, of, part = FRAME.unpack_from(data, position)
                last = position + 7 + part
                if kind != BODY or of != channel or not 0 < part <= length or last >= end or data[last] != _END:
                    return -1
                parts.append(view[position + 7 : last])
                position = last + 1
                length -= part
                if length and position + 7 > end:
                    return -1
            body = b"".join(parts)
        events.append(_delivery(data, start + 7, header - 1, bytes(data[header + 19 : header + 7 + size]), body))
        return position

    def _read_frame(self, kind: int, channel: int, payload: bytes, events: list[Event]) -> None:
        """Take in one frame that does not belong to a delivery in one piece. Raises FrameError."""
        begun = self._open.get(channel)
        if kind == HEARTBEAT:
            events.append(Frame(kind, channel, payload))
        elif kind == METHOD:
            if begun is not None:
                raise FrameError(f"a method on channel {channel} between another method and its content")
            if len(payload) < 4:
                raise FrameError(f"a method frame of {len(payload)} bytes; class and method take 4")
            if payload[:4] in _WITH_CONTENT:
                self._open[channel] = _PartialContent(payload)
            else:
                events.append(Frame(kind, channel, payload))
        elif begun is None or (begun.properties is None) != (kind == HEADER):
            what = "header" if kind == HEADER else "body"
            raise FrameError(f"a content {what} on channel {channel} where none belongs")
        else:
            begun.add(kind, payload)
            if begun.left == 0:
                del self._open[channel]
                events.append(begun.event(channel))


class _PartialContent:
    """A message of which some frames have arrived."""

    def __init__(self, method: bytes) -> None:
        self.method = method
        self.properties: bytes | None = None
        self.parts: list[bytes] = []
        self.left = -1  # bytes of the body that are still to come, once the header has

    def add(self, kind: int, payload: bytes) -> None:
        if kind == HEADER:
            if len(payload) < _LEAST_HEADER or payload[:4] != _BASIC:
                raise FrameError(f"a content header of {len(payload)} bytes that begins with {payload[:4]!r}")
            (self.left,) = _BODY_BYTES.unpack_from(payload, 4)
            if self.left > LONGEST_BODY:
                raise FrameError(f"a message claims a body of {self.left} bytes; {LONGEST_BODY} are the most")
            self.properties = payload[12:]
            return
        self.parts.append(payload)
        self.left -= len(payload)
        if self.left < 0:
            raise FrameError(f"a message has {-self.left} bytes of body more than its header says")

    def event(self, channel: int) -> Event:
        body = b"".join(self.parts)
        assert self.properties is not None
        if self.method[:4] == DELIVER:
            return _delivery(self.method, 0, len(self.method), self.properties, body)
        return Content(channel, self.method, self.properties, body)


def _delivery(data: bytes | bytearray, start: int, end: int, properties: bytes, body: bytes) -> Delivery:
    """Read the payload of a basic.deliver, `data` from `start` to `end`. Raises FrameError."""
    tag_at = start + 5 + data[start + 4] if start + 4 < end else end
    if tag_at + _TAG.size > end:
        raise FrameError(f"a basic.deliver of {end - start} bytes is too short for its fields")
    tag, redelivered = _TAG.unpack_from(data, tag_at)
    try:
        return Delivery(data[start + 5 : tag_at].decode(), tag, redelivered, properties, body)
    except UnicodeDecodeError as error:
        raise FrameError(f"a consumer tag is not text: {error}") from error
