"""What is touched of other packages without their promise is still there, and does what it did."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

import amqp
import pytest
from amqp.transport import TCPTransport

from tasks import compat


@pytest.fixture
def transport() -> Any:
    """A transport of py-amqp that is connected to nothing."""
    transport = TCPTransport("127.0.0.1:1")
    transport.sock = object()
    return transport


def test_amqp_a_transport_keeps_what_it_read_too_much(transport):
    transport._quick_recv = lambda size: b"header and more"
    assert transport._read(6) == b"header"
    connection = SimpleNamespace(transport=transport)
    assert compat.take_over(connection, lambda: None, lambda data: None) == (transport.sock, b" and more")


def test_amqp_a_connection_reads_frames_by_its_transports_read_frame(transport):
    connection = amqp.Connection()
    connection.transport = transport
    handled: list[Any] = []
    connection.on_inbound_frame = handled.append
    compat.take_over(connection, lambda *_: (1, 0, b"frame"), lambda data: None)
    connection.blocking_read()
    assert handled == [(1, 0, b"frame")]


def test_amqp_a_connection_writes_by_its_transports_underscore_write(transport):
    connection = amqp.Connection()
    connection.transport = transport
    connection.frame_max = 4096
    connection.frame_writer = connection.frame_writer_cls(connection, transport)  # made before `take_over`
    written: list[bytes] = []
    compat.take_over(connection, lambda: None, lambda data: written.append(bytes(data)))
    connection.send_heartbeat()
    assert written == [b"\x08\x00\x00\x00\x00\x00\x00\xce"]


def test_amqp_on_inbound_frame_takes_type_channel_and_payload():
    connection, heard = amqp.Connection(), list[Any]()
    connection.on_inbound_frame = connection.frame_handler_cls(connection, lambda *told: heard.append(told))
    compat.hand_frame(connection, (1, 3, b"\x00\x14\x00\x28rest"))
    assert heard == [(3, (20, 40), b"\x00\x14\x00\x28rest", None)]


def test_amqp_collect_closes_the_socket_and_may_be_called_again(transport):
    closed: list[str] = []
    transport.sock = SimpleNamespace(shutdown=lambda how: closed.append("shut"), close=lambda: closed.append("closed"))
    connection = amqp.Connection()
    connection.transport = transport
    compat.drop(connection)
    compat.drop(connection)
    assert closed == ["shut", "closed"]


def test_amqp_consuming_needs_no_callback():
    parameters = inspect.signature(amqp.Channel.basic_consume).parameters
    assert parameters["callback"].default is None
