"""A queue from any thread to one, with a descriptor that wakes it."""

from __future__ import annotations

import contextlib
import socket
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Mailbox(Generic[T]):
    """`post` from any thread, `take` in one. `descriptor` is readable while something is there."""

    def __init__(self) -> None:
        self._posted: deque[T] = deque()
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)

    @property
    def descriptor(self) -> int:
        """Return the descriptor, for a thread that waits for several things at once."""
        return self._reader.fileno()

    def __bool__(self) -> bool:
        return bool(self._posted)

    def post(self, thing: T) -> None:
        """Add a thing, and wake the thread that takes it."""
        self._posted.append(thing)
        if len(self._posted) <= 1:  # if there were others, the first has woken it
            with contextlib.suppress(OSError):  # closed: nothing waits any more
                self._writer.send(b"\0")

    def take(self) -> list[T]:
        """Take all that is there."""
        with contextlib.suppress(OSError):
            self._reader.recv(4096)
        taken = []
        while self._posted:
            taken.append(self._posted.popleft())
        return taken

    def close(self) -> None:
        """Close the descriptors."""
        self._reader.close()
        self._writer.close()
