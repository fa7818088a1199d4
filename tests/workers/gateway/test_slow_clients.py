"""Clients that hold connections: a connection's life and the number of connections are bounded."""

from __future__ import annotations

import http.client
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from support.game_clients import Http, Tcp
from support.gateways import Echo, Gateway
from support.waiting import PATIENCE, until

LONG = "content-length: 1000\r\n\r\n"  # for a body that comes byte by byte
START = "game_id: a\r\nstep_kind: start\r\n"


def drip(connection: socket.socket, byte: bytes) -> None:
    """Send a byte again and again, from a thread, for as long as the connection lasts."""

    def send() -> None:
        try:
            while True:
                connection.sendall(byte)
                if ended.wait(0.02):
                    return
        except OSError:
            return

    ended = threading.Event()
    threading.Thread(target=send, daemon=True).start()


def closed(connection: socket.socket) -> bytes:
    """Return the bytes that came until the gateway closed the connection."""
    came = b""
    try:
        while part := connection.recv(1 << 16):
            came += part
    except ConnectionError:  # reset, since bytes were still on their way
        pass
    return came


@pytest.fixture
def gateway(gateways: Any) -> Gateway:
    made: Gateway = gateways(Echo, "secret", receive=0.3)
    return made


@pytest.fixture
def slow(gateway: Gateway) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", gateway.server.port), timeout=PATIENCE) as connection:
        yield connection


@pytest.mark.parametrize(
    ("request_line", "headers", "status"),
    [
        ("GET / HTTP/1.1", "token: secret\r\n", b"200"),
        ("GET /health HTTP/1.1", "", b"200"),
        ("POST / HTTP/1.1", START, b"401"),
        ("POST / HTTP/1.1", "token: secret\r\n", b"400"),
        ("DELETE / HTTP/1.1", "", b"405"),
        ("POST / HTTP/1.1", f"token: secret\r\n{START}", b"408"),
    ],
)
def test_a_body_that_does_not_come_ends_its_connection(
    slow: socket.socket, request_line: str, headers: str, status: bytes
) -> None:
    slow.sendall(f"{request_line}\r\nhost: a\r\n{headers}{LONG}".encode())
    drip(slow, b"x")
    came = closed(slow)
    assert came.startswith(b"HTTP/1.1 " + status) and b"connection: close" in came


def test_a_refused_request_whose_body_came_keeps_its_connection(gateways: Any) -> None:
    http = Http(gateways(token="secret").server.port)
    http.connection.connect()
    sock = http.connection.sock
    assert http.ask(b"x" * 1000, session="a", step_kind="start")[0] == 401
    assert http.ask(b"x" * 1000, session="a", step_kind="jump", token="secret")[0] == 400
    assert http.connection.sock is sock


def test_blank_lines_between_requests_do_not_keep_a_connection(slow: socket.socket, gateway: Gateway) -> None:
    health = b"GET /health HTTP/1.1\r\nhost: a\r\n\r\n"
    slow.sendall(health)
    with http.client.HTTPResponse(slow) as first:
        first.begin()
        assert first.status == 200 and first.read()  # whole: its head may come before its body
    vars(gateway.limits)["idle"] = 0.5  # only now, so that a busy machine may be late with the first request
    slow.sendall(health)
    drip(slow, b"\r\n")
    assert closed(slow).startswith(b"HTTP/1.1 200 ")


class Talkative(Echo):
    """Its replies exceed what the kernel buffers for a client that does not read."""

    async def start(self, body: bytes) -> bytes:
        return bytes(32 << 20)


@pytest.mark.parametrize("raw", [False, True])
def test_a_client_that_does_not_read_its_reply_loses_its_connection(gateways: Any, raw: bool) -> None:
    gateway = gateways(Talkative, receive=0.3)
    port = gateway.server.tcp_port if raw else gateway.server.port
    head = b"game_id: a\nstep_kind: start\n"
    asked = struct.pack(">II", len(head), 0) + head if raw else f"POST / HTTP/1.1\r\nhost: a\r\n{START}\r\n".encode()
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
        connection.sendall(asked)
        until(lambda: len(gateway.sessions) == 1)
        until(lambda: gateway.server.connections.open == 0)


def test_tcp_checks_the_token_before_it_keeps_a_body(gateways: Any) -> None:
    tcp = Tcp(gateways(token="secret").server.tcp_port)
    for _ in range(2):  # the connection stays open, at the next frame
        head, _ = tcp.ask(b"x" * 200_000, session="a", step_kind="start", token="guess")
        assert head["status"] == "401"
    assert tcp.ask(b"", session="a", step_kind="start", token="secret")[0]["status"] == "200"


def test_connections_are_bounded_over_http_and_tcp_together(gateways: Any) -> None:
    gateway = gateways(connections=3)
    kept = [Http(gateway.server.port), Http(gateway.server.port)]
    assert [http.game(name, "start")[0] for http, name in zip(kept, "ab", strict=True)] == [200, 200]
    raw = Tcp(gateway.server.tcp_port)
    assert raw.ask(game_id="c", step_kind="start")[0]["status"] == "200"
    with socket.create_connection(("127.0.0.1", gateway.server.port), timeout=PATIENCE) as late:
        came = closed(late)
    assert came.startswith(b"HTTP/1.1 503 ") and b"3 connections are open" in came
    assert Tcp(gateway.server.tcp_port).reply()[0]["status"] == "503"
    assert kept[0].game("a", "tick", {"observation": [0, 1, 2]})[0] == 200
    raw.socket.close()

    def room() -> bool:
        try:
            return Http(gateway.server.port).game("d", "start")[0] == 200
        except OSError:
            return False

    until(room)
