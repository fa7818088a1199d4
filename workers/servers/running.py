"""The servers of a run: their URLs, and the processes that were started for them and are restarted."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from warren.errors import BrokerError
from workers.servers.checks import check_broker, check_redis
from workers.servers.process import Child

BROKER_VARIABLE, REDIS_VARIABLE = "WARREN_BROKER_URL", "WARREN_REDIS_URL"
ROOM = 16 << 20  # bytes that a private server needs on its disk to start
TRY_AGAIN = 5.0  # s after the system could not start a server
CALM = 60.0  # s after which an earlier end of a private server no longer counts

Say = Callable[[str], object]
Died = Callable[[Child, str], object]  # takes a private server that ended by itself, and what becomes of it
NOT_KEPT: Died = lambda child, then: None  # noqa: E731


class Revival:
    """Restarts of a private server after growing pauses, once its disk has room."""

    def __init__(self) -> None:
        self._deaths, self._died_at, self._again_at = 0, 0.0, 0.0
        self._full = False

    def check(self, child: Child, say: Say, restarts: int, died: Died = NOT_KEPT) -> None:
        """Count the death of a child that is not alive, or start it again when it is time. Raises BrokerError."""
        now = time.monotonic()
        if self._again_at:
            if now >= self._again_at and self._has_room(child, say):
                try:
                    child.start_again()
                    self._again_at = 0.0
                except OSError as error:  # for now, no memory, processes or open files are left
                    self._again_at = now + TRY_AGAIN
                    say(f"{child.name} could not be started: {error}; trying again in {TRY_AGAIN:g} s")
            return
        if now - self._died_at > CALM:
            self._deaths = 0
        if not self._deaths or _room(child) >= ROOM:  # deaths on a full disk do not count
            self._deaths += 1
        self._died_at = now
        if self._deaths > restarts:
            raise BrokerError(f"{child.death()}\n{child.name} ended {self._deaths} times; giving up ({restarts=})")
        wait = min(0.1 * 2 ** (self._deaths - 1), 5.0)
        self._again_at = now + wait
        then = f"starting {child.name} again, with its data, in {wait:g} s"
        died(child, then)
        say(f"{child.death()}\n{then}")

    def _has_room(self, child: Child, say: Say) -> bool:
        """Return whether the disk has room: without it a server may end again, or never answer."""
        full = _room(child) < ROOM
        if full and not self._full:
            say(f"{child.name} is started again once there is room on the disk of {child.log.parent}")
        self._full = full
        return not full


def _room(child: Child) -> int:
    return shutil.disk_usage(child.log.parent).free


@dataclass
class Servers:
    """A broker and a Redis that answered, and the processes that were started for them. Use as a context manager."""

    broker_url: str = field(repr=False)  # URLs hold passwords, and a repr ends up in logs
    redis_url: str = field(repr=False)
    kind: str  # "rabbitmq" or "redis": what the broker is
    description: str  # one line, without passwords
    folder: Path
    children: list[Child] = field(default_factory=list)
    on_stop: list[Callable[[], object]] = field(default_factory=list)
    temporary: bool = False  # `stop` ends both, with all that they hold
    _revivals: dict[Child, Revival] = field(default_factory=dict, repr=False)

    def environment(self) -> dict[str, str]:
        """Return the environment by which roles find the servers; only the owner of a process can see it."""
        return {BROKER_VARIABLE: self.broker_url, REDIS_VARIABLE: self.redis_url}

    def check(self) -> None:
        """Log in to both again. Raises BrokerError with the cause; for a dead private server with its last lines."""
        if death := self.dead():
            raise BrokerError(death)
        check_broker(self.broker_url)
        check_redis(self.redis_url)

    def dead(self) -> str | None:
        """Return the last lines of the first private server that ended by itself, or None. Cheap."""
        return next((child.death() for child in self.children if not child.alive), None)

    def revive(self, say: Say, restarts: int, died: Died = NOT_KEPT) -> None:
        """Restart private servers that ended by themselves, on the same port and with their data; call it often.

        `died` is called once per end. Raises BrokerError, with its last lines, if one has ended more than `restarts`
        times within CALM s each.
        """
        for child in self.children:
            if not child.alive:
                self._revivals.setdefault(child, Revival()).check(child, say, restarts, died)

    def stop(self) -> None:
        """Stop all started processes at the same time, within their grace times (process.py). Idempotent."""
        children, self.children = self.children, []
        endings, self.on_stop = self.on_stop, []
        try:
            for child in children:
                child.ask_to_stop()
            for child in children:
                child.stop()
        finally:
            for ending in endings:
                ending()

    def __enter__(self) -> Servers:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
