"""The socket of one connection as a stream of bytes, plain or TLS: one thread reads while any others write."""

from __future__ import annotations

import select
import socket
import ssl
import struct
import threading
import time
from functools import partial
from typing import Any

READ_BYTES = 1 << 18  # at most this much is taken from the socket at once
PARTS_AT_ONCE = 48  # buffers in one system call: a third of each is a frame of 128 KiB
TICK = 0.2  # s after which a read without a limit returns, so that a thread can be told to stop
SEND_TIMEOUT = 15.0  # s that a write may be held up (a broker short of memory stops reading) before it fails


class Stream:
    """A connected TCP socket. Reads and writes raise OSError when it cannot be used any more."""

    waker = -1  # a descriptor that ends the wait of a read as soon as it is readable

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._writing = threading.Lock()
        self._prepare()

    def _prepare(self) -> None:
        self._sock.settimeout(None)
        for option, seconds in ((socket.SO_RCVTIMEO, TICK), (socket.SO_SNDTIMEO, SEND_TIMEOUT)):
            whole = int(seconds)
            # A timeout in the kernel is one system call per read; one of Python's would add a poll.
            self._sock.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", whole, int((seconds - whole) * 1e6)))

    def read(self, timeout: float | None) -> bytes | None:
        """Read, waiting up to `timeout` s (None: TICK); return None when nothing has come, b"" at the end."""
        if not self._may_read(timeout):
            return None
        try:
            return self._sock.recv(READ_BYTES)
        except (BlockingIOError, InterruptedError, TimeoutError):
            return None

    def read_into(self, room: memoryview, timeout: float | None) -> int | None:
        """Read into `room`; return the number of bytes, None when none has come, 0 at the end."""
        if not self._may_read(timeout):
            return None
        try:
            return self._sock.recv_into(room)
        except (BlockingIOError, InterruptedError, TimeoutError):
            return None

    def write(self, data: bytes | memoryview) -> None:
        """Write all of it."""
        with self._writing:
            self._write(data)

    def _write(self, data: bytes | memoryview) -> None:
        self._sock.sendall(data)

    def write_at_once(self, data: bytes) -> bool:
        """Write a few bytes, unless that would have to wait; return whether they were written."""
        if not self._writing.acquire(blocking=False):
            return False
        try:
            if not self._wait(select.POLLOUT, 0.0):
                return False
            self._write(data)
            return True
        finally:
            self._writing.release()

    def write_parts(self, parts: list[Any]) -> None:
        """Write all of the parts, without joining them first."""
        with self._writing:
            for start in range(0, len(parts), PARTS_AT_ONCE):
                left = parts[start : start + PARTS_AT_ONCE]
                written, size = self._sock.sendmsg(left), sum(map(len, left))
                if written < size:
                    self._sock.sendall(memoryview(b"".join(left))[written:])

    def fileno(self) -> int:
        """Return the socket's descriptor, for event loops."""
        return self._sock.fileno()

    def abandon(self) -> None:
        """Close this process's copy of the socket alone: after a fork, parent and child have one each."""
        self._sock.close()

    def _may_read(self, timeout: float | None) -> bool:
        if self.waker >= 0:
            return self._wait(select.POLLIN, TICK if timeout is None else timeout, self.waker)
        return timeout is None or self._wait(select.POLLIN, timeout)

    def _wait(self, event: int, timeout: float, waker: int = -1) -> bool:
        """Return whether `event` comes within `timeout` s, and before `waker` is readable."""
        descriptor = self._sock.fileno()
        if descriptor < 0:
            raise OSError("the socket is closed")
        poll = select.poll()
        poll.register(descriptor, event)
        if waker >= 0:
            poll.register(waker, select.POLLIN)
        return any(ready == descriptor for ready, _ in poll.poll(1000 * timeout))


class TlsStream(Stream):
    """The same over TLS. Python before 3.13 does not guard an SSL object that two threads use: here a lock does.

    The socket does not block, so the lock is held for as long as the bytes take to be encrypted, never for a wait.
    """

    def _prepare(self) -> None:
        self._sock.settimeout(0.0)
        self._guard = threading.Lock()

    def read(self, timeout: float | None) -> bytes | None:
        """See Stream."""
        return self._read(lambda: self._sock.recv(READ_BYTES), timeout)  # type: ignore[no-any-return]

    def read_into(self, room: memoryview, timeout: float | None) -> int | None:
        """See Stream."""
        return self._read(lambda: self._sock.recv_into(room), timeout)  # type: ignore[no-any-return]

    def _write(self, data: bytes | memoryview) -> None:
        left = memoryview(data)
        while left:
            sent = self._try(partial(self._sock.send, left), time.monotonic() + SEND_TIMEOUT)
            if sent is None:
                raise TimeoutError(f"the broker has read nothing for {SEND_TIMEOUT:.0f} s")
            left = left[sent:]

    def write_parts(self, parts: list[Any]) -> None:
        """See Stream."""
        self.write(b"".join(parts))

    def _read(self, receive: Any, timeout: float | None) -> Any:
        return self._try(receive, time.monotonic() + (TICK if timeout is None else timeout), self.waker)

    def _try(self, act: Any, limit: float, waker: int = -1) -> Any:
        """Call `act` as soon as TLS allows it; return None if that is not before `limit`, or `waker` is readable."""
        while True:
            try:
                with self._guard:
                    return act()
            except ssl.SSLWantReadError:
                awaited = select.POLLIN
            except ssl.SSLWantWriteError:
                awaited = select.POLLOUT
            left = limit - time.monotonic()
            if left <= 0:
                return None
            # No longer than TICK: what is awaited may have gone to the other thread.
            if not self._wait(awaited, min(left, TICK), waker) and waker >= 0 and _is_readable(waker):
                return None


def _is_readable(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


def stream(sock: Any) -> Stream:
    """Return a stream over `sock`, with the lock that TLS needs."""
    return TlsStream(sock) if isinstance(sock, ssl.SSLSocket) else Stream(sock)
