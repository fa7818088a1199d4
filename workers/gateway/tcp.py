"""The gateway over plain TCP, for games without an HTTP client. Requests and replies are frames:

    uint32, big-endian    length of the head
    uint32, big-endian    length of the body
    head                  lines "name: value", each ended by a newline: the fields that HTTP has as headers
    body                  the game's own

A reply's head begins with "status: 200". A connection carries one request after another, of any sessions.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import time
from collections.abc import Mapping
from types import MappingProxyType

from workers.gateway.connections import Connections
from workers.gateway.protocol import Fields, Refusal, read
from workers.gateway.sessions import Sessions

SIZES = struct.Struct(">II")
LONGEST_HEAD = 1 << 13  # bytes
PART = 1 << 16  # bytes of an unwanted body that are read at once


def frame(fields: dict[str, str], body: bytes) -> bytes:
    """Return a request or a reply as bytes."""
    head = "".join(f"{name}: {value}\n" for name, value in fields.items()).encode("latin-1")
    return SIZES.pack(len(head), len(body)) + head + body


def pairs(head: bytes) -> list[tuple[bytes, bytes]]:
    """Return the fields of a head. Raises Refusal 400."""
    found = []
    for line in head.splitlines():
        name, colon, value = line.partition(b":")
        if not colon:
            raise Refusal(400, f"head: {line[:40].decode('ascii', 'backslashreplace')!r} is not a line 'name: value'")
        found.append((name.strip().lower(), value.strip()))
    return found


class Connection:
    """One connection of a game."""

    def __init__(self, sessions: Sessions, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._sessions, self._reader, self._writer = sessions, reader, writer

    async def serve(self) -> None:
        """Answer until the game leaves, is idle for Limits.idle s, or sends a frame that cannot be understood."""
        limits = self._sessions.limits
        try:
            goes_on = True
            while goes_on:
                async with asyncio.timeout(limits.idle):
                    sizes = await self._reader.readexactly(1)
                try:
                    reply, goes_on = await self._answer(sizes)
                except Refusal as refusal:  # the next frame's beginning is not known
                    reply, goes_on = _refused(refusal), False
                self._writer.write(reply)
                async with asyncio.timeout(limits.receive):
                    await self._writer.drain()
            await self._pass_over_the_rest()
        except (asyncio.IncompleteReadError, TimeoutError, OSError):
            pass
        finally:
            if self._writer.transport.get_write_buffer_size():  # it closes once the game has read that, else then:
                asyncio.get_running_loop().call_later(limits.receive, self._writer.transport.abort)
            self._writer.close()

    async def _answer(self, begun: bytes) -> tuple[bytes, bool]:
        sessions, limits = self._sessions, self._sessions.limits
        body = b""
        try:
            async with asyncio.timeout(limits.receive):
                head_length, body_length = SIZES.unpack(begun + await self._reader.readexactly(SIZES.size - 1))
                if head_length > LONGEST_HEAD:
                    raise Refusal(431, f"head: {head_length} bytes are over the {LONGEST_HEAD} that it may have")
                if body_length > limits.body:
                    raise Refusal(413, f"body: {body_length} bytes are over the {limits.body} that it may have")
                head = await self._reader.readexactly(head_length)
                fields = self._fields(head)
                if isinstance(fields, Refusal):
                    await self._pass_over(body_length)
                else:
                    body = await self._reader.readexactly(body_length)
        except TimeoutError:
            raise Refusal(408, f"frame: did not come within {limits.receive:g} s") from None
        echoed: dict[str, str] = {}
        began = time.perf_counter()
        try:
            if isinstance(fields, Refusal):
                raise fields
            echoed = {name.decode(): value.decode() for name, value in fields.echoed}
            said = frame({"status": "200", **echoed}, await sessions.answer(fields.with_body(body)))
            sessions.metrics.answered(200, time.perf_counter() - began)
            return said, True
        except Refusal as refusal:
            sessions.metrics.answered(refusal.status, time.perf_counter() - began)
            return _refused(refusal, echoed), True

    async def _pass_over_the_rest(self) -> None:
        """Tell the game that no reply follows, and read and drop what it still sends, for at most Limits.receive s.

        A connection that is closed while data arrive is reset, which may take the last reply from the game.
        """
        self._writer.write_eof()
        async with asyncio.timeout(self._sessions.limits.receive):
            while await self._reader.read(PART):
                pass

    def _fields(self, head: bytes) -> Fields | Refusal:
        try:
            self._sessions.rates.admit(self._writer.get_extra_info("peername"))
            fields = read(pairs(head))
            self._sessions.allow(fields.token)
        except Refusal as refusal:
            return refusal
        return fields

    async def _pass_over(self, length: int) -> None:
        """Read and drop `length` bytes."""
        while length > 0:
            part = await self._reader.read(min(length, PART))
            if not part:
                raise asyncio.IncompleteReadError(b"", length)
            length -= len(part)


def _refused(refusal: Refusal, echoed: Mapping[str, str] = MappingProxyType({})) -> bytes:
    located = {} if refusal.address is None else {"location": refusal.address}
    return frame({"status": str(refusal.status), **located, **echoed}, refusal.body())


class TcpServer:
    """All TCP connections of a gateway."""

    def __init__(self, sessions: Sessions, connections: Connections) -> None:
        self._sessions, self._connections = sessions, connections
        self._serving: set[asyncio.Task[None]] = set()

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection; the callback of asyncio.start_server."""
        if not self._connections.enter():
            writer.write(_refused(self._connections.refusal()))
            writer.close()
            return
        task = asyncio.ensure_future(Connection(self._sessions, reader, writer).serve())
        self._serving.add(task)
        task.add_done_callback(self._left)

    def _left(self, task: asyncio.Task[None]) -> None:
        self._serving.discard(task)
        self._connections.leave()

    async def close(self) -> None:
        """End all connections."""
        for task in self._serving:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*self._serving, return_exceptions=True)
