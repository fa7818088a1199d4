"""Every private or undocumented part of celery, kombu and py-amqp that is touched, and nothing else.

An upgrade may change any of them silently; tests/tasks/test_compat.py has a test for each, which then fails with
its name. Versions that they hold for: celery 5.7, kombu 5.7, amqp 5.4.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# py-amqp


def take_over(
    connection: Any, read_frame: Callable[..., tuple[int, int, bytes]], write: Callable[[Any], None]
) -> tuple[Any, bytes]:
    """The socket of an open `amqp.Connection`, and what was read from it and not used yet.

    From now on the connection reads its frames by `read_frame` and writes its bytes by `write`.
    """
    transport = connection.transport
    unused, transport._read_buffer = bytes(transport._read_buffer), b""
    transport.read_frame = read_frame
    transport._write = write
    return transport.sock, unused


def hand_frame(connection: Any, frame: Any) -> None:
    """Have an `amqp.Connection` deal with a frame that was read for it: a tuple of type, channel and payload."""
    connection.on_inbound_frame(frame)


def drop(connection: Any) -> None:
    """Close the socket of an `amqp.Connection` without telling the broker. Safe to call again."""
    connection.collect()
