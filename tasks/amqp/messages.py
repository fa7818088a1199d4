"""The messages of calls and replies, in Celery's message protocol 2; their constant parts are built once."""

from __future__ import annotations

import os
import socket
import struct
import time
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from tasks import codec
from tasks.amqp import frames
from tasks.amqp.frames import (
    CONTENT_ENCODING,
    CONTENT_TYPE,
    CORRELATION_ID,
    FRAME,
    HEADERS,
    REPLY_TO,
    TYPE,
    short,
    table,
)

DIRECT_REPLY = "amq.rabbitmq.reply-to"  # RabbitMQ's pseudo-queue: replies come back on the channel of the call
ID_BYTES = 36  # a UUID as text
EXPIRES_BYTES = 32  # 2026-01-31T12:00:00.000000+00:00
PERSISTENT = b"\x02"

FAILED, LOST = "failed", "lost"  # types of replies that carry no result

_SIZE = struct.Struct(">Q")
_BODY_ID = struct.Struct(">I")
NO_LINKS = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}


class Ids:
    """Ids of calls: valid UUIDs of 23 random characters per caller and a counter; a new one costs next to nothing."""

    def __init__(self) -> None:
        self._prefix, self._count = str(uuid.UUID(bytes=os.urandom(16), version=4))[:24], 0

    def new(self) -> str:
        """Return the next id."""
        self._count += 1
        return f"{self._prefix}{self._count:012x}"


def expires_at(seconds: float) -> bytes:
    """Format the time `seconds` from now as Celery's `expires` header: ISO 8601, UTC, always EXPIRES_BYTES long."""
    return datetime.fromtimestamp(time.time() + seconds, UTC).isoformat(timespec="microseconds").encode()


def _origin() -> str:
    """Return the name of this process in Celery's form for processes that are not workers."""
    return f"gen{os.getpid()}@{socket.gethostname()}"


class Envelope:
    """Writes calls of one service; only id, deadline and body differ between them. `headers`: the caller's own.

    `key`: the routing key, where that is not the service's name.
    """

    def __init__(
        self,
        channel: int,
        frame_max: int,
        exchange: str,
        service: str,
        *,
        reply_to: str = "",
        time_to_live: float | None = None,
        retries: int = 0,
        persistent: bool = False,
        headers: Mapping[str, Any] | None = None,
        priority: int | None = None,
        key: str = "",
    ) -> None:
        self._channel, self._frame_max = channel, frame_max
        flags = CONTENT_TYPE | CONTENT_ENCODING | HEADERS | frames.DELIVERY_MODE | CORRELATION_ID
        flags |= 0 if priority is None else frames.PRIORITY
        flags |= (REPLY_TO if reply_to else 0) | (frames.EXPIRATION if time_to_live is not None else 0)
        fixed = table({**(headers or {}), "lang": "py", "task": service, "retries": retries, "origin": _origin()})
        fixed += short("id") + b"S" + _BODY_ID.pack(ID_BYTES)
        root = short("root_id") + b"S" + _BODY_ID.pack(ID_BYTES)
        self.expires = time_to_live is not None
        expires = short("expires") + b"S" + _BODY_ID.pack(EXPIRES_BYTES) if self.expires else b""
        size = len(fixed) + ID_BYTES + len(root) + ID_BYTES + len(expires) + (EXPIRES_BYTES if self.expires else 0)
        start = flags.to_bytes(2, "big") + short(codec.CONTENT_TYPE) + short("binary") + size.to_bytes(4, "big")
        mode = (PERSISTENT if persistent else b"\x01") + (b"" if priority is None else bytes((priority,)))
        ending = short(reply_to) if reply_to else b""
        if time_to_live is not None:
            ending += short(str(max(1, int(time_to_live * 1000))))
        self._start, self._root, self._expires = start + fixed, root, expires
        self._correlation, self._ending = mode + bytes((ID_BYTES,)), ending
        length = len(self._start) + ID_BYTES + len(root) + ID_BYTES + len(expires)
        length += (EXPIRES_BYTES if self.expires else 0) + len(self._correlation) + ID_BYTES + len(ending)
        method = frames.publish_method(channel, exchange, key or service, mandatory=True)
        self._head = method + FRAME.pack(frames.HEADER, channel, 12 + length) + b"\x00\x3c\x00\x00"

    def write(self, call_id: str, expires: bytes, body: bytes) -> bytes:
        """Write the frames of one call. `expires`: from `expires_at`, or b"" for an envelope without time to live."""
        raw = call_id.encode()
        size = len(body)
        parts: tuple[Any, ...] = (
            *(self._head, _SIZE.pack(size), self._start, raw, self._root, raw, self._expires, expires),
            *(self._correlation, raw, self._ending, frames.END),
        )
        if 0 < size <= self._frame_max - frames.OVERHEAD:
            return b"".join((*parts, FRAME.pack(frames.BODY, self._channel, size), body, frames.END))
        view, step = memoryview(body), self._frame_max - frames.OVERHEAD
        pieces: list[Any] = list(parts)
        for at in range(0, size, step):
            piece = view[at : at + step]
            pieces += (FRAME.pack(frames.BODY, self._channel, len(piece)), piece, frames.END)
        return b"".join(pieces)


class Replies:
    """Writes replies; the frame that addresses a caller is kept, because most callers ask more than once."""

    REMEMBERED = 4096  # callers

    def __init__(self, channel: int, frame_max: int) -> None:
        self._channel, self._frame_max = channel, frame_max
        self._heads: dict[str, bytes] = {}

    def write(self, reply_to: str, call_id: str, body: bytes, kind: str = "") -> list[bytes]:
        """Write the frames of one reply, to be joined. `kind`: "" for a result, FAILED or LOST."""
        head = self._heads.get(reply_to)
        if head is None:
            if len(self._heads) >= self.REMEMBERED:
                self._heads.clear()
            head = self._heads[reply_to] = frames.publish_method(self._channel, "", reply_to)
        raw = call_id.encode()
        if kind:
            properties = (CORRELATION_ID | TYPE).to_bytes(2, "big") + bytes((len(raw),)) + raw + short(kind)
        else:
            properties = b"\x04\x00" + bytes((len(raw),)) + raw
        return [head, *frames.content(self._channel, properties, body, self._frame_max)]
