"""Heartbeats: one thread per process sends them, since a task may compute for longer than their interval."""

from __future__ import annotations

import os
import threading
import time
import weakref
from typing import Protocol

from celery.utils.log import get_logger

logger = get_logger(__name__)

IDLE = 5.0  # s between checks without a connection


class HeartbeatConnection(Protocol):
    """A connection that needs heartbeats."""

    heartbeat: float  # s of silence after which the other side gives it up
    alive: bool
    blocked: str  # a broker that is short of memory reads nothing, and expects nothing
    sent_at: float

    def beat(self) -> None:
        """Send a heartbeat, unless that would have to wait; raises ConnectionError."""

    def abandon(self) -> None:
        """Close this process's copy of the socket after a fork."""


class Heartbeats:
    """Sends a heartbeat on each connection that nothing was sent on for a third of its interval.

    No connection keeps the others waiting: one that is being written to needs no heartbeat, and one whose socket is
    full could not send it any sooner.
    """

    def __init__(self) -> None:
        self._connections: weakref.WeakSet[HeartbeatConnection] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def tend(self, connection: HeartbeatConnection) -> None:
        """Send heartbeats on `connection` until it is closed."""
        if not connection.heartbeat:
            return
        with self._lock:
            self._connections.add(connection)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="heartbeats", daemon=True)
                self._thread.start()

    def after_fork(self) -> None:
        """Abandon the parent's connections in a child: heartbeats would hide the parent's death from the broker."""
        inherited = list(self._connections)
        self._connections = weakref.WeakSet()
        self._lock, self._thread = threading.Lock(), None
        for connection in inherited:
            connection.abandon()

    def _run(self) -> None:
        while True:
            time.sleep(self._beat())

    def _beat(self) -> float:
        """Send the heartbeats that are due; return the s until the next check."""
        with self._lock:
            connections = [one for one in self._connections if one.alive and not one.blocked]
        for connection in connections:
            if time.monotonic() - connection.sent_at > connection.heartbeat / 3:
                try:
                    connection.beat()
                except ConnectionError as error:
                    logger.debug("a heartbeat found its connection gone: %s", error)
                except Exception:  # if this thread ended, the broker would give all connections up
                    logger.exception("a heartbeat was not sent")
        return min((connection.heartbeat / 4 for connection in connections), default=IDLE)


heartbeats = Heartbeats()
os.register_at_fork(after_in_child=heartbeats.after_fork)
