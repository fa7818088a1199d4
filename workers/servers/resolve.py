"""The choice of a run's RabbitMQ and Redis: given, already listening, private, installed or embedded, in that order."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from warren.errors import ConfigurationError
from workers.servers import record
from workers.servers.checks import kind_of
from workers.servers.choice import Choice, FoundServer
from workers.servers.exposure import BROKER_PORT, REDIS_PORT, open_address
from workers.servers.folder_lock import FolderLock
from workers.servers.machine import Machine
from workers.servers.modes import BROKER_STEPS, PRIVATE, REDIS_STEPS, given_urls
from workers.servers.running import Say, Servers
from workers.servers.startup import ServerSettings, Startup
from workers.servers.ways import BrokerWays, RedisWays


def acquire(
    mode: str = "auto", broker_url: str | None = None, redis_url: str | None = None, *, say: Say = print, **given: Any
) -> Servers:
    """Find or start a broker and a Redis, and wait until both have answered a login: `begin(...).finish(say)`."""
    return begin(mode, broker_url, redis_url, **given).finish(say)


def begin(
    mode: str = "auto",
    broker_url: str | None = None,
    redis_url: str | None = None,
    *,
    folder: Path,
    run: str | None = None,
    durable: bool = False,
    unsaved: Callable[[], bool] | None = None,
    broker_port: int | None = None,
    redis_port: int | None = None,
    listen: str | None = None,
    machine: Machine | None = None,
    lock: FolderLock | None = None,
    environment: Mapping[str, str] = os.environ,
) -> PendingServers:
    """Begin to find or start a broker and a Redis for the run in `folder`: a private broker boots from now on.

    mode -- `auto` takes the first of the steps below that works; every other mode takes only one of them.
      `external`: the URLs given here, or in WARREN_BROKER_URL and WARREN_REDIS_URL (or in files
      that WARREN_BROKER_URL_FILE and WARREN_REDIS_URL_FILE name). A redis:// broker may be both.
      `local`: what listens on this machine's ports 5672 (as guest) and 6379 (without a password).
      `private`: started from the installed binaries, on free loopback ports, files under `folder`/servers.
      `install`: like private, after installing the distribution's packages (Debian or Ubuntu, as root or by sudo).
      `embedded`: one server from a pip package as broker, result backend and pool; needs nothing installed.
    run -- the run's name on the servers, for the record in its folder.
    durable -- whether a private Redis starts with the data of an earlier one in `folder`, and leaves its own.
    unsaved -- called at the start and at the end: returns whether a private Redis holds data that is missing from the
      run's folder, since a launcher was killed. If so, the data is kept, as if `durable`.
    broker_port, redis_port -- ports for private servers; default any free one.
    listen -- an address of this machine, or 0.0.0.0, at which private servers listen besides loopback, on the usual
      ports, with the password in WARREN_PASSWORD. Traffic there is not encrypted.
    lock -- the lock of `folder`, if the caller has taken it already; the caller then releases it.

    A URL that was given and fails is an error, never a reason to take another server. Raises ConfigurationError for
    settings that make no sense; `finish` raises BrokerError, naming what was tried and why it failed.
    """
    broker_url, redis_url = given_urls(mode, broker_url, redis_url, environment)
    opened = None if listen is None else open_address(listen, mode, environment)
    if opened is not None:
        broker_port, redis_port = broker_port or BROKER_PORT, redis_port or REDIS_PORT
    settings = ServerSettings(
        mode, broker_url, redis_url, folder, durable, unsaved or (lambda: False), broker_port, redis_port, opened,
        machine or Machine(), run, lock,
    )  # fmt: skip
    return PendingServers(settings)


class PendingServers:
    """Servers that are being found or started. Use as a context manager: without `finish` it stops them."""

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self._startup = Startup(settings)
        self._redis_ways = RedisWays(self._startup)
        self._broker_ways = BrokerWays(self._startup, self._redis_ways)
        self._refuse_others()
        lock = settings.lock or FolderLock.take(settings.folder)
        endings = self._startup.running.on_stop
        endings.append(lambda: record.remove(settings.folder))
        if settings.lock is None:
            endings.append(lock.release)
        try:
            self._broker = self._choice("broker", self._broker_ways, BROKER_STEPS[settings.mode])
        except BaseException:
            self.stop()
            raise

    def _refuse_others(self) -> None:
        """Raise ConfigurationError if another Redis is named although a private one has left unsaved data."""
        private = set(REDIS_STEPS[self.settings.mode]) & set(PRIVATE)
        if self._startup.holds_unsaved() and (self.settings.redis_url or not private):
            raise ConfigurationError(
                f"the launcher of {self.settings.folder} was killed, and its private Redis left data that is not saved "
                f"elsewhere: go on with broker=private and no URLs, or remove {self._startup.home / 'redis'} to lose it"
            )

    def _choice(self, what: str, ways: BrokerWays | RedisWays, steps: Sequence[str]) -> Choice:
        return Choice(what, self.settings.mode, {step: getattr(ways, step) for step in steps})

    def finish(self, say: Say = print) -> Servers:
        """Wait until both answer a login and return them. Raises BrokerError, naming what was tried and why it failed.

        `say` is called with each line of progress; the last line names the chosen servers.
        """
        settings = self.settings
        try:
            broker = self._broker.finish(say)
            redis = self._find_redis(broker, say)
            servers = self._startup.running
            servers.broker_url, servers.redis_url = broker.url, redis.url
            servers.kind = kind_of(broker.url)
            servers.temporary = broker.temporary and redis.temporary
            servers.description = "; ".join(
                filter(None, (f"broker: {broker.description}", redis.description and f"Redis: {redis.description}"))
            )
            node = self._broker_ways.node.node.as_dict() if self._broker_ways.node else None
            found = record.Record(
                broker.url, redis.url, servers.kind, servers.description, os.getpid(), node, settings.run
            )
            found.write(settings.folder)
            say(servers.description)
            if settings.open_at is not None:
                ports = settings.broker_port or BROKER_PORT, settings.redis_port or REDIS_PORT
                say(settings.open_at.invitation(servers.kind, *ports))
        except BaseException:
            self.stop()
            raise
        self._startup.hand_over()
        return servers

    def _find_redis(self, broker: FoundServer, say: Say) -> FoundServer:
        embedded = self._broker_ways.embedded_redis
        if embedded is not None and not self.settings.redis_url:
            return FoundServer(embedded.url, "", broker.temporary)  # one server does everything
        steps = REDIS_STEPS[self.settings.mode]
        if self._startup.holds_unsaved():
            steps = tuple(step for step in steps if step in PRIVATE)
        return self._choice("Redis", self._redis_ways, steps).finish(say)

    def stop(self) -> None:
        """Stop the servers that do not belong to the caller. Idempotent."""
        self._startup.stop()

    def __enter__(self) -> PendingServers:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
