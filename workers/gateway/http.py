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
from workers.gateway.limits import Limits
from workers.gateway.protocol import Refusal, read
from workers.gateway.sessions import Sessions

LONGEST_HEAD = 1 << 16  # bytes of a request's headers
OWN_METRICS = "/metrics/process"  # what this process alone counts, as JSON, for those that share its port
AGAIN = 1  # s after which a game may try again, of one that is refused for now

Receive = Callable[[], Any]
Send = Callable[[dict[str, Any]], Any]


class Endpoint:
    """POST, at any path: what a game asks. GET: how the gateway is doing, as JSON; /metrics: for Prometheus; /health:
    whether games may come, status 200 or 503."""

    def __init__(
        self, sessions: Sessions, facts: Callable[[], dict[str, Any]] = dict, gather: metrics.Gather = metrics.alone
    ) -> None:
        """`facts`: what GET tells beside the sessions. `gather`: of whom /metrics tells beside this process."""
        self._sessions, self._facts, self._gather = sessions, facts, gather

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        echoed: tuple[tuple[bytes, bytes], ...] = ()
        began = time.perf_counter()
        try:
            if scope["method"] == "GET":
                await self._tell(scope["path"], send)
                return
            if scope["method"] != "POST":
                raise Refusal(405, f"method {scope['method']}: a game asks by POST")
            fields = read(scope["headers"])
            self._sessions.allow(fields.token)
            echoed = fields.echoed
            body = await self._body(scope["headers"], receive)
            if body is None:
                return  # the client has gone
            await _reply(send, 200, await self._sessions.answer(fields.with_body(body)), echoed)
            self._sessions.metrics.answered(200, time.perf_counter() - began)
        except Refusal as refusal:
            self._sessions.metrics.answered(refusal.status, time.perf_counter() - began)
            headers = [*echoed, (b"content-type", b"application/json")]
            if refusal.status in (408, 413):  # the rest of the body may still come
                headers.append((b"connection", b"close"))
            elif refusal.status == 503:
                headers.append((b"retry-after", str(AGAIN).encode()))
            elif refusal.status == 405:
                headers.append((b"allow", b"GET, POST"))
            elif refusal.address is not None:
                headers.append((b"location", refusal.address.encode() + scope["raw_path"]))
            await _reply(send, refusal.status, refusal.body(), tuple(headers))

    async def _tell(self, path: str, send: Send) -> None:
        sessions = self._sessions
        if path == "/health":
            await _reply(send, 200 if sessions.ready else 503, json.dumps({"ready": sessions.ready}).encode() + b"\n")
            return
        facts = {**self._facts(), **sessions.figures()}
        if path == "/metrics":
            text = ((b"content-type", b"text/plain; version=0.0.4"),)
            await _reply(send, 200, metrics.text(await self._gather(sessions.metrics.snapshot(facts))), text)
        elif path == OWN_METRICS:
            await _reply(send, 200, json.dumps(sessions.metrics.snapshot(facts)).encode())
        else:
            await _reply(send, 200, json.dumps(facts).encode() + b"\n")

    async def _body(self, headers: list[tuple[bytes, bytes]], receive: Receive) -> bytes | None:
        limits = self._sessions.limits
        told = next((value for name, value in headers if name == b"content-length"), b"0")
        parts, length = [], 0
        if int(told) > limits.body:
            raise _too_large(limits)
        try:
            async with asyncio.timeout(limits.receive):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    parts.append(message.get("body", b""))
                    length += len(parts[-1])
                    if length > limits.body:
                        raise _too_large(limits)
                    if not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError:
            raise Refusal(408, f"body: {length} bytes came within {limits.receive:g} s, and no end of it") from None


def _too_large(limits: Limits) -> Refusal:
    return Refusal(413, f"body: is over the {limits.body} bytes that it may have (gateway.max_body)")


async def _reply(send: Send, status: int, body: bytes, headers: tuple[tuple[bytes, bytes], ...] = ()) -> None:
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [length, *headers]})
    await send({"type": "http.response.body", "body": body})


class _Protocol(HttpToolsProtocol):
    """uvicorn's, which knows no bounds for a request's headers: neither of time nor of size."""

    limits = Limits()
    _deadline: asyncio.TimerHandle | None = None
    _in_head, _head = True, 0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._within(self.limits.idle)

    def on_message_begin(self) -> None:
        self._in_head = True
        self._within(self.limits.receive)
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head, self._head = False, 0
        self._no_deadline()
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._in_head:
            self._head += len(data)
            if self._head > LONGEST_HEAD:
                self._refuse(Refusal(431, f"headers: are over the {LONGEST_HEAD} bytes that they may have"))

    def send_400_response(self, msg: str) -> None:
        self._refuse(Refusal(400, msg))

    def connection_lost(self, exc: Exception | None) -> None:
        self._no_deadline()
        super().connection_lost(exc)

    def _within(self, seconds: float) -> None:
        self._no_deadline()
        self._deadline = self.loop.call_later(seconds, self._too_slow)

    def _no_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        self._refuse(Refusal(408, f"headers: did not come within {self.limits.receive:g} s"))

    def _refuse(self, refusal: Refusal) -> None:
        self._no_deadline()
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete:
            body = refusal.body()
            head = f"HTTP/1.1 {refusal.status} \r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
            self.transport.write(head.encode() + body)
        self.transport.close()


def server(app: Endpoint, limits: Limits) -> uvicorn.Server:
    """uvicorn, which serves it once `serve(sockets)` is awaited, until `should_exit`."""
    protocol = type("BoundedProtocol", (_Protocol,), {"limits": limits})
    config = uvicorn.Config(
        app,
        proxy_headers=False,  # nobody asks for the address of a game
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
