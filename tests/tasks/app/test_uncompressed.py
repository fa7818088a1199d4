"""Tests of compressed messages and results: the app's connections refuse them before they are unpacked."""

from __future__ import annotations

import bz2
import contextlib
import json
import zlib
from collections.abc import Iterator
from typing import Any

import kombu.pools
import pytest
from celery.backends.base import compress_payload
from kombu import compression
from support.waiting import until

from tasks.app import create_app
from tasks.topology import Topology
from warren.errors import CodecError
from workers.servers import Servers

NAMES = ("gzip", "zlib", "bzip2", "lzma", "xz", "brotli", "zstd", "application/x-gzip", "application/zstd")
CLEAR = json.dumps([["x"], {}, {}]).encode()


@pytest.fixture(params=["rabbitmq", "embedded"])
def app(request: pytest.FixtureRequest, run_name: str) -> Iterator[Any]:
    found: Servers = request.getfixturevalue("servers" if request.param == "rabbitmq" else "embedded")
    yield create_app(Topology(run_name), found.broker_url, found.redis_url)


@pytest.fixture
def unpacked(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Return the list of bodies that kombu unpacks; it supports all compressions here, even brotli and zstd."""
    found: list[bytes] = []

    def unpack(body: bytes) -> bytes:
        found.append(body)
        return CLEAR

    decoders = dict.fromkeys((*compression.encoders(), *NAMES, "application/x-brotli"), unpack)
    monkeypatch.setattr(compression, "_decoders", decoders)
    return found


def receive(
    app: Any,
    connection: Any,
    name: str | None,
    body: bytes = CLEAR,
    content_type: str = "application/json",
    encoding: str = "utf-8",
) -> tuple[Any, list[Any]]:
    """Publish a message with compression `name`; return a consumer's messages, and its (message, error) pairs."""
    queue = kombu.Queue(f"{app.warren_topology.prefix}.probe", durable=False, auto_delete=True)
    received, errors = list[Any](), list[Any]()
    with connection, connection.channel() as channel:
        consumer = connection.Consumer(
            queue(channel), channel=channel, on_message=received.append, no_ack=True,
            on_decode_error=lambda message, error: errors.append((message, error)),
        )  # fmt: skip
        with consumer:
            headers = {"compression": name} if name else {}
            connection.Producer(channel).publish(
                body,
                routing_key=queue.name,
                headers=headers,
                content_type=content_type,
                content_encoding=encoding,
            )

            def arrived() -> bool:
                with contextlib.suppress(TimeoutError):
                    connection.drain_events(timeout=0.2)
                return bool(received or errors)

            until(arrived)
    return received, errors


@pytest.mark.parametrize("name", NAMES)
def test_a_compressed_message_has_an_error_and_its_own_bytes(app, unpacked, name):
    received, ((message, error),) = receive(app, app.connection_for_read(), name)
    assert isinstance(error, CodecError) and f"it is compressed ({name!r})" in str(error)
    assert (message.body.encode() if isinstance(message.body, str) else message.body) == CLEAR
    assert received == unpacked == []


@pytest.mark.parametrize(
    ("encoding", "body"),
    [("bz2", bz2.compress(CLEAR)), ("BZ2", bz2.compress(CLEAR)), ("zip", zlib.compress(CLEAR))],
    ids=["bz2", "BZ2", "zip"],
)
@pytest.mark.parametrize("content_type", ["application/data", "application/x-unknown"])
def test_a_message_whose_content_encoding_unpacks_has_an_error_and_its_own_bytes(app, encoding, body, content_type):
    received, ((message, error),) = receive(app, app.connection_for_read(), None, body, content_type, encoding)
    assert isinstance(error, CodecError) and f"its content encoding is {encoding!r}" in str(error) and received == []
    assert (message.body.encode("latin-1") if isinstance(message.body, str) else bytes(message.body)) == body


def test_a_message_that_is_not_compressed_is_received(app, unpacked):
    (message,), errors = receive(app, app.connection_for_read(), None)
    assert message.payload == [["x"], {}, {}] and errors == unpacked == []


def test_a_connection_of_the_apps_pool_refuses_compressed_messages(app, unpacked):
    received, ((_, error),) = receive(app, app.pool.acquire(block=True), "gzip")
    assert isinstance(error, CodecError) and received == unpacked == []


def test_a_pool_is_not_shared_with_connections_of_others(app):
    other = kombu.Connection(app.conf.broker_read_url, transport_options=app.conf.broker_transport_options)
    own = app.connection_for_write()
    assert kombu.pools.connections[own] is kombu.pools.connections[app.connection_for_write()]
    assert kombu.pools.connections[other] is not kombu.pools.connections[own]


def test_other_connections_in_the_process_still_unpack(app, unpacked):
    (message,), errors = receive(app, kombu.Connection(app.conf.broker_read_url), "gzip")
    assert message.payload == [["x"], {}, {}] and len(unpacked) == 1 and errors == []


def test_a_compressed_result_is_refused_unread(app, unpacked):
    backend = app.backend
    stored = {"status": "SUCCESS", "result": None, "traceback": None, "children": [], "task_id": "x"}
    assert backend.decode_result(backend.encode(stored))["status"] == "SUCCESS"
    with pytest.raises(CodecError, match="a result is compressed"):
        backend.decode_result(compress_payload(backend.encode(stored), "gzip"))
    backend.client.set(backend.get_key_for_task("x"), compress_payload(zlib.compress(b"0" * 100), "gzip"))
    with pytest.raises(CodecError, match="a result is compressed"):
        app.AsyncResult("x").state  # noqa: B018
    assert unpacked == []
