"""The other end of a connection under test: a socket in place of a broker, and a stand-in for py-amqp's connection."""

from __future__ import annotations

import socket
import struct
import threading
from types import SimpleNamespace
from typing import Any

from tasks.amqp import frames
from tasks.amqp.connection import Link


def method(channel: int, name: bytes, fields: bytes = b"") -> bytes:
    return frames.FRAME.pack(frames.METHOD, channel, 4 + len(fields)) + name + fields + frames.END


def delivery(tag: int, body: bytes, consumer: str = "c") -> bytes:
    fields = frames.short(consumer) + struct.pack(">Q?", tag, False) + frames.short("") + frames.short("key")
    return method(1, frames.DELIVER, fields) + b"".join(frames.content(1, b"\x00\x00", body, 4096))


class Peer:
    """A Link and the socket of its broker. `passed`: frames handed to py-amqp."""

    def __init__(self, heartbeat: float = 0.0, near: Any = None, far: Any = None) -> None:
        if near is None:
            near, far = socket.socketpair()
        self.near, self.far, self.passed = near, far, list[Any]()
        self.transport = SimpleNamespace(_read_buffer=b"", read_frame=None, _write=None, sock=near)
        self.connection = SimpleNamespace(
            transport=self.transport,
            frame_max=4096,
            heartbeat=heartbeat,
            channel=lambda: SimpleNamespace(channel_id=1),
            on_inbound_frame=self.passed.append,
            collect=near.close,
        )
        kombu = SimpleNamespace(connection=self.connection, alt=[], ensure_connection=lambda **_: None)
        self.app = SimpleNamespace(connection_for_write=lambda **_: kombu)
        self.link = Link(self.app)

    def trickle(self, data: bytes, stop: threading.Event) -> threading.Thread:
        """Send `data` again and again, in the thread that is returned, until `stop` is set."""

        def send() -> None:
            while not stop.wait(0.02):
                self.far.sendall(data)

        thread = threading.Thread(target=send, daemon=True)
        thread.start()
        return thread

    def received(self, size: int) -> bytes:
        """Return the next `size` bytes of the link's output."""
        self.far.settimeout(60.0)
        data = b""
        while len(data) < size:
            piece = self.far.recv(size - len(data))
            assert piece, f"the link closed after {len(data)} of {size} bytes"
            data += piece
        return data
