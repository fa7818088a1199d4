"""Clients of a gateway, written from its documentation alone."""

from __future__ import annotations

import http.client
import json
import socket
import struct
from typing import Any


class Http:
    """An HTTP connection; `ask` returns (status, body, headers)."""

    def __init__(self, port: int) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)

    def ask(self, body: bytes = b"", method: str = "POST", **headers: str) -> tuple[int, bytes, dict[str, str]]:
        self.connection.request(method, "/", body, headers)
        reply = self.connection.getresponse()
        return reply.status, reply.read(), dict(reply.getheaders())

    def game(self, game_id: str, step_kind: str, body: Any = None) -> tuple[int, bytes]:
        said = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.ask(said, game_id=game_id, step_kind=step_kind)[:2]

    def facts(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.ask(method="GET")[1])
        return found


class Tcp:
    """A connection of the raw form; `ask` returns (head, body)."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=120)

    def ask(self, body: bytes = b"", **fields: str) -> tuple[dict[str, str], bytes]:
        head = "".join(f"{name}: {value}\n" for name, value in fields.items()).encode()
        self.socket.sendall(struct.pack(">II", len(head), len(body)) + head + body)
        return self.reply()

    def reply(self) -> tuple[dict[str, str], bytes]:
        head, body = struct.unpack(">II", self._read(8))
        lines = self._read(head).decode().splitlines()
        return dict(line.split(": ", 1) for line in lines), self._read(body)

    def _read(self, count: int) -> bytes:
        read = b""
        while len(read) < count:
            part = self.socket.recv(count - len(read))
            assert part, "the gateway closed the connection"
            read += part
        return read
