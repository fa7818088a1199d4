"""The gateway over HTTP: an ASGI application, and uvicorn, which serves it within bounds of time and size."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from workers.gateway import metrics
from workers.gateway.connections import Connections
from workers.gateway.limits import Limits
from workers.gateway.protocol import Refusal, read
from workers.gateway.sessions import Sessions

LONGEST_HEAD = 1 << 16  # bytes of a request's headers
HEALTH = "/health"  # path at which GET needs no token, and counts in no rate
AGAIN = 1  # s after which a game that is refused for now may try again

Receive = Callable[[], Any]
Send = Callable[[dict[str, Any]], Any]
Headers = tuple[tuple[bytes, bytes], ...]


class Endpoint:
    """POST, at any path, is a game's request. GET returns the gateway's figures, as JSON; at /metrics for Prometheus;
    at /health status 200 if games may begin, else 503, without a token."""

    def __init__(
        self, sessions: Sessions, facts: Callable[[], dict[str, Any]] = dict, gather: metrics.Gather = metrics.alone
    ) -> None:
        """`facts`: those that GET adds to the sessions' figures. `gather`: the processes that /metrics reports on."""
        self._sessions, self._facts, self._gather = sessions, facts, gather

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        echoed: Headers = ()
        began = time.perf_counter()
        sent = _Body(self._sessions.limits, scope["headers"], receive)
        try:
            if (scope["method"], scope["path"]) != ("GET", HEALTH):
                self._sessions.rates.admit(scope["client"])
            if scope["method"] == "GET":
                status, said, headers = await self._tell(scope)
            elif scope["method"] != "POST":
                raise Refusal(405, f"method {scope['method']}: a game asks by POST")
            else:
                fields = read(scope["headers"])
                self._sessions.allow(fields.token)
                status, echoed = 200, fields.echoed
                if (body := await sent.read()) is None:
                    return  # the client has gone
                said, headers = await self._sessions.answer(fields.with_body(body)), echoed
                self._sessions.metrics.answered(200, time.perf_counter() - began)
        except Refusal as refusal:
            status, said = refusal.status, refusal.body()
            headers = (*echoed, *_explaining(refusal, scope["raw_path"]))
            self._sessions.metrics.answered(status, time.perf_counter() - began)
        # The rest of an unwanted body is read and dropped, so that the connection goes on; if the rest does not come
        # in time, the connection is closed.
        if not await sent.pass_over() or (status == 503 and self._sessions.draining):
            headers = (*headers, (b"connection", b"close"))
        await _reply(send, status, said, headers)

    async def _tell(self, scope: dict[str, Any]) -> tuple[int, bytes, Headers]:
        sessions, path = self._sessions, scope["path"]
        if path == HEALTH:
            health = sessions.health()
            return 200 if health["ready"] else 503, json.dumps(health).encode() + b"\n", ()
        sessions.allow(_token_of(scope["headers"]))
        facts = {**self._facts(), **sessions.figures()}
        if path == "/metrics":
            text = ((b"content-type", b"text/plain; version=0.0.4"),)
            return 200, metrics.text(await self._gather(sessions.metrics.snapshot(facts))), text
        if path == metrics.OWN:
            return 200, json.dumps(sessions.metrics.snapshot(facts)).encode(), ()
        return 200, json.dumps(facts).encode() + b"\n", ()


class _Body:
    """The body of one request, which has to come within bounds of time and size, even if it is not wanted."""

    def __init__(self, limits: Limits, headers: list[tuple[bytes, bytes]], receive: Receive) -> None:
        self._limits, self._headers, self._receive = limits, dict(headers), receive
        self._until = asyncio.get_running_loop().time() + limits.receive
        self._length = 0
        self._whole = self._failed = False

    async def read(self) -> bytes | None:
        """Return the body; None if the client has gone. Raises Refusal 408 or 413."""
        parts: list[bytes] = []
        if int(self._headers.get(b"content-length", b"0")) > self._limits.body:
            raise _too_large(self._limits)
        while not self._whole:
            if (part := await self._next()) is None:
                return None
            parts.append(part)
            if self._length > self._limits.body:
                raise _too_large(self._limits)
        return b"".join(parts)

    async def pass_over(self) -> bool:
        """Read and drop the rest of the body, however large it is; return False if it does not come in time."""
        if b"expect" in self._headers:
            return self._whole  # a client that expects to be asked for the body has not sent it
        try:
            while not self._whole and not self._failed:
                await self._next()
        except Refusal:
            return False
        return self._whole

    async def _next(self) -> bytes | None:
        """Return the next part of the body; None if the client has gone. Raises Refusal 408."""
        self._failed = True  # unless it comes
        try:
            async with asyncio.timeout_at(self._until):
                message = await self._receive()
        except TimeoutError:
            limit = f"{self._limits.receive:g} s"
            raise Refusal(408, f"body: {self._length} bytes came within {limit}, and no end of it") from None
        if message["type"] == "http.disconnect":
            return None
        part: bytes = message.get("body", b"")
        self._length += len(part)
        self._failed, self._whole = False, not message.get("more_body", False)
        return part


def _too_large(limits: Limits) -> Refusal:
    return Refusal(413, f"body: is over the {limits.body} bytes that it may have (gateway.max_body)")


def _explaining(refusal: Refusal, path: bytes) -> Headers:
    """Return the headers that tell a client how to go on."""
    headers = [(b"content-type", b"application/json")]
    if refusal.status in (429, 503):
        headers.append((b"retry-after", str(AGAIN).encode()))
    elif refusal.status == 405:
        headers.append((b"allow", b"GET, POST"))
    elif refusal.address is not None:
        headers.append((b"location", refusal.address.encode() + path))
    return tuple(headers)


def _token_of(headers: list[tuple[bytes, bytes]]) -> bytes | None:
    """Return the token of a GET, from the header that games send or from Prometheus's `Authorization: Bearer`."""
    found = dict(headers)
    scheme, _, token = found.get(b"authorization", b"").partition(b" ")
    return found.get(b"token", token if scheme.lower() == b"bearer" else None)


async def _reply(send: Send, status: int, body: bytes, headers: Headers) -> None:
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [length, *headers]})
    await send({"type": "http.response.body", "body": body})


class _Protocol(HttpToolsProtocol):
    """uvicorn's protocol with bounds on connections and their times.

    The bounds are on the number of connections, the time and size of headers, the time between requests, whatever bytes
    come meanwhile, and the time in which a client has to read a reply.
    """

    limits = Limits()
    counted: Connections
    _deadline: asyncio.TimerHandle | None = None
    _to_read: asyncio.TimerHandle | None = None
    _entered = False
    _in_head, _head = True, 0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._entered = self.counted.enter()
        if self._entered:
            self._within(self.limits.idle, self._close)
        else:
            self._refuse(self.counted.refusal())

    def on_message_begin(self) -> None:
        self._in_head = True
        self._within(self.limits.receive, self._too_slow)
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head, self._head = False, 0
        self._no_deadline()
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            self._close()
        elif not self._in_head and (self.cycle is None or self.cycle.response_complete):
            self._within(self.limits.idle, self._close)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._in_head:
            self._head += len(data)
            if self._head > LONGEST_HEAD:
                self._refuse(Refusal(431, f"headers: are over the {LONGEST_HEAD} bytes that they may have"))

    def send_400_response(self, msg: str) -> None:
        self._refuse(Refusal(400, msg))

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._to_read is None:
            self._to_read = self.loop.call_later(self.limits.receive, self.transport.abort)

    def resume_writing(self) -> None:
        if self._to_read is not None:
            self._to_read.cancel()
            self._to_read = None
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._no_deadline()
        if self._to_read is not None:
            self._to_read.cancel()
        if self._entered:
            self._entered = False
            self.counted.leave()
        super().connection_lost(exc)

    def _within(self, seconds: float, otherwise: Callable[[], None]) -> None:
        self._no_deadline()
        self._deadline = self.loop.call_later(seconds, otherwise)

    def _no_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        self._refuse(Refusal(408, f"headers: did not come within {self.limits.receive:g} s"))

    def _refuse(self, refusal: Refusal) -> None:
        if not self.transport.is_closing() and (self.cycle is None or self.cycle.response_complete):
            body = refusal.body()
            head = f"HTTP/1.1 {refusal.status} \r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
            self.transport.write(head.encode() + body)
        self._close()

    def _close(self) -> None:
        """Close the connection once the client has read its reply, for which it has Limits.receive s."""
        self._within(self.limits.receive, self.transport.abort)
        self.transport.close()


def server(app: Endpoint, limits: Limits, connections: Connections) -> uvicorn.Server:
    """Return uvicorn's server, which serves `app` once `serve(sockets)` is awaited, until `should_exit`."""
    protocol = type("BoundedProtocol", (_Protocol,), {"limits": limits, "counted": connections})
    config = uvicorn.Config(
        app,
        proxy_headers=False,  # games behind a proxy count as one address
        http=protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=int(limits.idle) + 1,
        timeout_graceful_shutdown=5,
    )
    return uvicorn.Server(config)
