"""Clients of threads that have ended, kept with their connections for threads that start."""

from __future__ import annotations

import os
from collections import deque

from tasks.client.driver import Driver

MOST_IDLE = 16  # clients that are kept


class Idle:
    """The clients that no thread uses. No method waits or takes a lock: `Lease.__del__` runs at any point of code."""

    def __init__(self) -> None:
        self._clients: deque[tuple[int, Driver]] = deque()  # with the process that each belongs to; the newest last

    def take(self) -> Driver | None:
        """Return the client that was used last; None where there is none."""
        while self._clients:
            try:
                pid, client = self._clients.pop()
            except IndexError:  # another thread was faster
                return None
            if pid == os.getpid() and not client.closed:
                client.table.failures.take()  # forget those of another thread
                return client
        return None

    def add(self, client: Driver) -> None:
        """Keep a client, or drop its connection if enough are kept. Leave one with calls under way alone."""
        if client.closed or client.under_way:
            return
        if len(self._clients) < MOST_IDLE:
            self._clients.append((os.getpid(), client))
        else:
            client.drop()

    def clear(self) -> None:
        """Drop all of them."""
        self._clients.clear()


class Lease:
    """A thread's use of a client; it ends with the thread's own variables, and the client is idle again."""

    __slots__ = ("_idle", "client", "pid")

    def __init__(self, client: Driver, idle: Idle) -> None:
        self.client, self._idle, self.pid = client, idle, os.getpid()

    def __del__(self) -> None:
        if self.pid == os.getpid():
            self._idle.add(self.client)
