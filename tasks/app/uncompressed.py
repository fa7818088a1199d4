"""Compressed messages and results are refused unread: one of 1 MB may unpack to 1 GB before anything can look at it.

kombu unpacks a message with a header `compression` while it makes the message's object, and one with a content encoding
such as bz2 when its payload is read. Celery unpacks a stored result by a mark in its first bytes. Warren sends none of
these: long bodies go by claim check.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import kombu
from kombu.connection import ConnectionPool
from kombu.message import Message

from tasks.compat import COMPRESSED_RESULT
from warren.errors import CodecError

ENCODINGS = ("binary", "utf-8", "us-ascii")


def refusal(compression: object) -> str:
    """Return the reason for refusing a message with this header `compression`."""
    return f"it is compressed ({compression!r:.60}), and Warren unpacks nothing: send it without `compression`"


def _problem(headers: Any, encoding: Any) -> str | None:
    """Return why a message would be unpacked, or None."""
    if headers and headers.get("compression"):
        return refusal(headers["compression"])
    # Python knows "encodings" that unpack, as bz2 and zip do, and kombu decodes by any of them.
    if not encoding or str(encoding).lower() in ENCODINGS:
        return None
    return f"its content encoding is {encoding!r:.60}, and Warren takes {', '.join(ENCODINGS)}"


class _Uncompressed(Message):  # type: ignore[misc]
    """The base of every message class here: a message that kombu would unpack gets an error; its body stays as it is.

    kombu gives such a message to its consumer's `on_decode_error`.
    """

    def __init__(
        self, body: Any = None, *args: Any, headers: Any = None, content_encoding: Any = None, **settings: Any
    ) -> None:
        problem = _problem(headers, content_encoding)
        if problem is not None:
            try:
                raise CodecError(problem)
            except CodecError:
                self.errors = [sys.exc_info()]  # kombu unpacks nothing that has an error
        super().__init__(body, *args, headers=headers, content_encoding=content_encoding, **settings)


_classes: dict[type, type] = {}  # a transport's class of messages -> the same over _Uncompressed


def _refusing(channel: Any) -> Any:
    """Make `channel` refuse compressed messages from now on; return it."""
    kind = channel.Message
    if kind not in _classes:
        _classes[kind] = type(kind.__name__, (kind, _Uncompressed), {})
    channel.Message = _classes[kind]
    return channel


class RunConnection(kombu.Connection):  # type: ignore[misc]
    """kombu's connection, whose channels, and those of its pools, refuse compressed messages."""

    def channel(self) -> Any:
        """Create and return a new channel."""
        return _refusing(super().channel())

    def Pool(self, limit: int | None = None, **settings: Any) -> Any:
        """Return a pool of connections like this one."""
        return _RunPool(self, limit, **settings)

    def __eqhash__(self) -> Any:
        """Keep kombu from sharing a pool with connections of others to the same broker."""
        return RunConnection, super().__eqhash__()


class _RunPool(ConnectionPool):  # type: ignore[misc]
    def new(self) -> Any:
        made = super().new()
        open_channel = made.channel
        made.channel = lambda: _refusing(open_channel())
        return made


def refuse_compressed_results(backend: Any) -> None:
    """Make a result backend raise CodecError for a compressed result."""
    decode: Callable[[Any], Any] = backend.decode

    def decode_plain(payload: Any) -> Any:
        if isinstance(payload, bytes | bytearray | memoryview) and bytes(payload[:64]).startswith(COMPRESSED_RESULT):
            raise CodecError(
                "a result is compressed, and Warren unpacks nothing: unset `result_compression` where it was stored"
            )
        return decode(payload)

    backend.decode = decode_plain
