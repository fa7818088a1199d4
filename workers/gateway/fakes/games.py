"""Games that send requests to a gateway for a given time, and their statistics: requests, latencies, refusals."""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import urlsplit

import httptools

CLOSED, LATE = "closed", "late"  # in place of a status: the connection was closed, the answer was late
PATIENCE = 60.0  # s for an answer


@dataclass(frozen=True)
class Play:
    """The games' behaviour. `burst`: all games send their requests together, after pauses of `delay` s."""

    url: str
    dialect: str = "session"  # or "game_id"
    token: str | None = None
    start: bytes = b""
    tick: bytes = b""
    end: bytes = b""
    ticks: int = 50  # ticks of a game
    delay: float = 0.0  # s between a reply and the next request, at random up to twice as long
    burst: bool = False  # all pause until the same moments
    leave: float = 0.0  # chance that a game leaves for good before a request, and closes its connection


@dataclass
class PlayStatistics:
    """Replies and errors that games saw; latencies in s."""

    statuses: Counter[str] = field(default_factory=Counter)
    latencies: list[float] = field(default_factory=list)
    games: int = 0
    left: int = 0  # games that left for good
    seconds: float = 0.0  # until the last answer came

    @property
    def errors(self) -> int:
        """Number of requests that were not answered by 200."""
        return sum(count for status, count in self.statuses.items() if status != "200")


class _Connection(asyncio.Protocol):
    """A connection that carries one request after another."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._answer: asyncio.Future[str] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._transport.abort()

    def on_message_complete(self) -> None:
        """Take the reply that the parser has read."""
        self._tell(str(self._parser.get_status_code()))

    def connection_lost(self, exc: Exception | None) -> None:
        self._tell(CLOSED)

    def _tell(self, status: str) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(status)

    async def ask(self, request: bytes) -> str:
        """Return the status of the reply, or CLOSED."""
        if self._transport.is_closing():
            return CLOSED
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._answer

    def close(self) -> None:
        self._transport.abort()


async def play(what: Play, clients: int, seconds: float) -> PlayStatistics:
    """Play `clients` games at once, each followed by another, for `seconds`."""
    seen, began = PlayStatistics(), time.monotonic()
    await asyncio.gather(*(_client(what, seen, began + seconds) for _ in range(clients)))
    seen.seconds = time.monotonic() - began
    return seen


async def _client(what: Play, seen: PlayStatistics, until: float) -> None:
    address = urlsplit(what.url)
    host, port = address.hostname or "127.0.0.1", address.port or 80
    connection: _Connection | None = None
    while time.monotonic() < until:
        seen.games += 1
        session = uuid.uuid4().hex
        end = "end" if what.dialect == "game_id" else "stop"
        kinds = [("start", what.start), *[("tick", what.tick)] * what.ticks, (end, what.end)]
        for kind, body in kinds:
            if what.leave and random.random() < what.leave:
                seen.left += 1
                if connection is not None:
                    connection.close()
                    connection = None
                break
            if connection is None:
                try:
                    loop = asyncio.get_running_loop()
                    _, connection = await loop.create_connection(_Connection, host, port)
                except OSError:
                    seen.statuses[CLOSED] += 1
                    await asyncio.sleep(0.1)
                    break
            status = await _timed(connection, _request(what, session, kind, body), seen)
            if status != "200":
                connection.close()
                connection = None
                break
            if what.delay:
                await asyncio.sleep(_pause(what))
            if time.monotonic() >= until and kind != end:
                await _timed(connection, _request(what, session, end, what.end), seen)
                break
    if connection is not None:
        connection.close()


async def _timed(connection: _Connection, request: bytes, seen: PlayStatistics) -> str:
    began = time.perf_counter()
    try:
        async with asyncio.timeout(PATIENCE):
            status = await connection.ask(request)
    except TimeoutError:
        status = LATE
    seen.latencies.append(time.perf_counter() - began)
    seen.statuses[status] += 1
    return status


def _pause(what: Play) -> float:
    if what.burst:
        return what.delay - time.monotonic() % what.delay
    return random.uniform(0, 2 * what.delay)


def _request(what: Play, session: str, kind: str, body: bytes) -> bytes:
    token = "" if what.token is None else f"token: {what.token}\r\n"
    head = (
        f"POST / HTTP/1.1\r\nhost: gateway\r\n{what.dialect}: {session}\r\nstep_kind: {kind}\r\n{token}"
        f"content-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
