"""A Redis of a test's own with its data in a folder, which the test kills and restarts."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import redis

from support.waiting import until
from workers.servers.ports import free_port


class OwnRedis:
    """A Redis whose append-only file is synced before each answer; `client` connects to it, also after a restart.

    With the usual sync once per second, a crash may lose the last acknowledged writes.
    """

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.folder = folder
        folder.mkdir()
        self.client = redis.Redis(port=self.port)
        self.start()

    @property
    def url(self) -> str:
        """Return the URL on which it listens."""
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start it with its data and wait until it answers."""
        options = ["--port", str(self.port), "--dir", str(self.folder), "--appendonly", "yes"]
        options += ["--appendfsync", "always", "--save", ""]
        self.process = subprocess.Popen(
            ["redis-server", "--bind", "127.0.0.1", *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

        until_it_answers(self.port)

    def kill(self) -> None:
        """Kill it, as a crash does."""
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()


def until_it_answers(port: int) -> None:
    """Wait until the Redis on `port` answers, which takes seconds on a busy machine."""

    def answers() -> bool:
        with redis.Redis(port=port) as client:
            try:
                return bool(client.ping())
            except (redis.ConnectionError, redis.BusyLoadingError):
                return False

    until(answers, f"an answer of the Redis on port {port}")
