"""Requests to an ASGI application without a server: a whole answer, or the parts of a stream as they come."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Answer:
    """The answer of an application; header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        """Return the body as text."""
        packed = self.headers.get("content-encoding") == "gzip"
        return (gzip.decompress(self.body) if packed else self.body).decode()

    def json(self) -> Any:
        """Return the value that the body holds as JSON."""
        return json.loads(self.text)


def scope_of(method: str, address: str, headers: dict[str, str]) -> dict[str, Any]:
    """Return the scope of a request."""
    path, _, query = address.partition("?")
    sent = {"host": "127.0.0.1:8050", **headers}
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": [(name.lower().encode(), value.encode()) for name, value in sent.items()],
        "client": ("127.0.0.1", 40000),
        "server": ("127.0.0.1", 8050),
    }


def ask(
    app: Any, address: str, method: str = "GET", body: bytes = b"", headers: dict[str, str] | None = None
) -> Answer:
    """Return the answer to one request."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    asyncio.run(app(scope_of(method, address, headers or {}), receive, send))
    found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return Answer(sent[0]["status"], found, b"".join(one.get("body", b"") for one in sent[1:]))


async def listen(app: Any, address: str, headers: dict[str, str], take: Callable[[bytes], Awaitable[bool]]) -> None:
    """Give each part of a stream to `take`; disconnect when it returns False."""
    gone = asyncio.Event()
    asked = False

    async def receive() -> dict[str, Any]:
        nonlocal asked
        if not asked:
            asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.body" and not await take(message["body"]):
            gone.set()

    scope = scope_of("GET", address, headers)
    scope["asgi"]["spec_version"] = "2.3"  # uvicorn's version: the application then listens for its client's disconnect
    await app(scope, receive, send)
