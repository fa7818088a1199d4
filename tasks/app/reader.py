"""The reader of a queue, and whether it is on this host: senders use shared memory only where it sees the same files.

The reader leaves a mark in the run's folder of shared memory and names it in Redis, again every few seconds. A sender
that finds that very mark shares the folder with it, whatever their host names and containers. Any doubt (no reader for
a while, no mark, another user, no room) sends a long body by claim check.
"""

from __future__ import annotations

import re
import secrets
import time
from typing import Any

import redis
from celery.utils.log import get_logger

from tasks.codec import shared_memory
from tasks.codec.shared_memory import SharedFolder
from tasks.topology import Topology

logger = get_logger(__name__)

HOLDS = 30  # s for which an announcement holds
READ_EVERY = 1.0  # s for which a sender relies on what it read last
SWEEP_EVERY = 60.0  # s between a reader's sweeps

_ANNOUNCEMENT = re.compile(rb"([0-9a-f]{16}) (reader-[0-9a-f]{16})")


class Reader:
    """The reader of `queue`: announces that it is here. `older_than`: s after which files are left-overs."""

    def __init__(self, client: redis.Redis, topology: Topology, queue: Any, older_than: float) -> None:
        self._redis, self._topology, self._key = client, topology, _key(topology, queue.routing_key)
        self._older_than = older_than
        self._mark = f"reader-{secrets.token_hex(8)}"
        self._folder: SharedFolder | None = None
        self._sweep_at = 0.0

    def announce(self) -> bool:
        """Announce that this process reads the queue, by shared memory too; call it every few seconds.

        Returns False where there is no shared memory. Raises redis.RedisError.
        """
        folder = SharedFolder(self._token())
        self._sweep(folder)
        if not (folder.make() and folder.mark(self._mark)):
            return False
        self._folder = folder
        self._redis.set(self._key, f"{folder.token} {self._mark}", ex=HOLDS)
        return True

    def leave(self) -> None:
        """Take the announcement back; what was sent stays for the next reader. Raises redis.RedisError."""
        if self._folder is not None:
            self._folder.unmark(self._mark)
            said: Any = self._redis.get(self._key)
            if said == f"{self._folder.token} {self._mark}".encode():
                self._redis.delete(self._key)

    def _token(self) -> str:
        key = token_key(self._topology)
        self._redis.set(key, shared_memory.new_token(), nx=True)
        token: Any = self._redis.get(key)
        return (token or b"").decode("ascii", "replace")

    def _sweep(self, folder: SharedFolder) -> None:
        if self._folder is None:
            shared_memory.sweep_all(self._older_than)
        elif time.monotonic() >= self._sweep_at:
            folder.sweep(self._older_than)
        else:
            return
        self._sweep_at = time.monotonic() + SWEEP_EVERY


class ReaderHere:
    """A sender's view: calling it gives the folder that it shares with the reader of `queue`, None without one."""

    def __init__(self, client: redis.Redis, topology: Topology, queue: Any) -> None:
        self._redis, self._key = client, _key(topology, queue.routing_key)
        self._folder: SharedFolder | None = None
        self._read_at = 0.0

    def __call__(self) -> SharedFolder | None:
        """Return the shared folder, looked up at most once a second; None while Redis is away."""
        if time.monotonic() >= self._read_at:
            self._read_at = time.monotonic() + READ_EVERY
            self._folder = self._look()
        return self._folder

    def _look(self) -> SharedFolder | None:
        try:
            said: Any = self._redis.get(self._key)
        except redis.RedisError as error:
            logger.debug("the queue's reader is not known: %s", error)
            return None
        found = _ANNOUNCEMENT.fullmatch(said or b"")
        if found is None:
            return None
        folder = SharedFolder(found[1].decode())
        return folder if folder.has_mark(found[2].decode()) else None


def remove_shared(client: redis.Redis, topology: Topology) -> None:
    """Remove the run's folder of shared memory on this host. Raises redis.RedisError."""
    token: Any = client.get(token_key(topology))
    if token is not None and re.fullmatch(rb"[0-9a-f]{16}", token):
        SharedFolder(token.decode()).remove()


def token_key(topology: Topology) -> str:
    """Return the Redis key of the name of the run's folder."""
    return f"{topology.key_prefix}shared"


def _key(topology: Topology, queue: str) -> str:
    return f"{topology.key_prefix}reader:{queue}"
