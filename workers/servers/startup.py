"""The start of a run's servers: the settings asked for, and the private servers that are not ready yet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from workers.servers import record
from workers.servers.exposure import OpenAddress
from workers.servers.folder_lock import FolderLock
from workers.servers.machine import Machine
from workers.servers.private_redis import holds_data
from workers.servers.process import Server, Starting
from workers.servers.running import Servers

S = TypeVar("S", bound=Server)


@dataclass(frozen=True)
class ServerSettings:
    """Servers as a caller of `resolve.begin` asks for them: its arguments."""

    mode: str
    broker_url: str | None = field(repr=False)
    redis_url: str | None = field(repr=False)
    folder: Path
    durable: bool
    unsaved: Callable[[], bool]
    broker_port: int | None
    redis_port: int | None
    open_at: OpenAddress | None
    machine: Machine
    run: str | None
    lock: FolderLock | None


class Startup:
    """Servers of a run that are being started; ready ones are in `running`, to be stopped together on failure."""

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self.home = settings.folder / record.FOLDER
        self.running = Servers("", "", "", "", settings.folder)
        self._starting: list[Starting[Any]] = []

    def holds_unsaved(self) -> bool:
        """Return whether a private Redis of a killed launcher left data that is missing from the run's folder."""
        return self.settings.unsaved() and holds_data(self.home / "redis")

    def begin(self, starting: Starting[S]) -> Starting[S]:
        """Take in a server that boots, to be stopped unless it is finished."""
        self._starting.append(starting)
        return starting

    def finish(self, starting: Starting[S]) -> S:
        """Wait until a server answers and return it; its caller puts it into `running`."""
        self._starting.remove(starting)
        return starting.finish()

    def hand_over(self) -> Servers:
        """Return the running servers, which belong to the caller from now on."""
        running, self.running = self.running, Servers("", "", "", "", self.settings.folder)
        return running

    def stop(self) -> None:
        """Stop the servers that do not belong to the caller. Idempotent."""
        starting, self._starting = self._starting, []
        try:
            for server in starting:
                server.stop()
        finally:
            self.running.stop()
