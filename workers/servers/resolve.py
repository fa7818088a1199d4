"""The choice of a run's RabbitMQ and Redis: given, already listening, private, installed or embedded, in that order."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from warren.errors import ConfigurationError
from workers.servers import debian, record
from workers.servers.checks import check_broker, check_redis, kind_of, redact
from workers.servers.choice import Choice, Finish, FoundServer, Unavailable
from workers.servers.exposure import BROKER_PORT, REDIS_PORT, OpenAddress, open_address
from workers.servers.folder_lock import FolderLock
from workers.servers.machine import Machine
from workers.servers.modes import BROKER_STEPS, PRIVATE, REDIS_STEPS, given_urls
from workers.servers.private_rabbitmq import PrivateRabbitMQ
from workers.servers.private_redis import PrivateRedis, forget, holds_data
from workers.servers.process import LOOPBACK, Server, Starting, listens
from workers.servers.running import BROKER_VARIABLE, REDIS_VARIABLE, Say, Servers

EMBEDDED_BROKER_DATABASE = 1  # apart from the league, so that each database shows only its own keys
LOCAL_TIMEOUT = 3.0  # seconds to wait for a server that listens on a well-known port

S = TypeVar("S", bound=Server)


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

    mode -- `auto` takes the first that works of the steps below; every other mode takes one of them alone.
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
    settings = _Settings(
        mode, broker_url, redis_url, folder, durable, unsaved or (lambda: False), broker_port, redis_port, opened,
        machine or Machine(), run, lock,
    )  # fmt: skip
    return PendingServers(settings)


@dataclass(frozen=True)
class _Settings:
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


class PendingServers:
    """Servers that are being found or started. Use as a context manager: without `finish` it stops them."""

    def __init__(self, settings: _Settings) -> None:
        self.settings = settings
        self.home = settings.folder / record.FOLDER
        self.node: PrivateRabbitMQ | None = None
        self.embedded: PrivateRedis | None = None
        self.running = Servers("", "", "", "", settings.folder)  # filled in step by step; stopped as a whole on failure
        self._starting: list[Starting[Any]] = []
        self._refuse_others()
        lock = settings.lock or FolderLock.take(settings.folder)
        self.running.on_stop = [lambda: record.remove(settings.folder)]
        if settings.lock is None:
            self.running.on_stop.append(lock.release)
        try:
            self._broker = self._choice("broker", BROKER_STEPS)
        except BaseException:
            self.stop()
            raise

    def _holds_unsaved(self) -> bool:
        return self.settings.unsaved() and holds_data(self.home / "redis")

    def _refuse_others(self) -> None:
        """Raise ConfigurationError if another Redis is named although a private one has left unsaved data."""
        private = set(REDIS_STEPS[self.settings.mode]) & set(PRIVATE)
        if self._holds_unsaved() and (self.settings.redis_url or not private):
            raise ConfigurationError(
                f"the launcher of {self.settings.folder} was killed, and its private Redis left data that is not saved "
                f"elsewhere: go on with broker=private and no URLs, or remove {self.home / 'redis'} to lose it"
            )

    def finish(self, say: Say = print) -> Servers:
        """Wait until both answer a login and return them. Raises BrokerError, naming what was tried and why it failed.

        `say` is called with each line of progress; the last line names the chosen servers.
        """
        try:
            broker = self._broker.finish(say)
            if self.embedded is not None and not self.settings.redis_url:
                redis = FoundServer(self.embedded.url, "", broker.temporary)  # one server does everything
            else:
                steps = REDIS_STEPS[self.settings.mode]
                if self._holds_unsaved():
                    steps = tuple(step for step in steps if step in PRIVATE)
                redis = self._choice("redis", {self.settings.mode: steps}).finish(say)
            servers = self.running
            servers.broker_url, servers.redis_url = broker.url, redis.url
            servers.kind = kind_of(broker.url)
            servers.temporary = broker.temporary and redis.temporary
            servers.description = "; ".join(
                filter(None, (f"broker: {broker.description}", redis.description and f"Redis: {redis.description}"))
            )
            node = self.node.node.as_dict() if self.node else None
            found = record.Record(
                broker.url, redis.url, servers.kind, servers.description, os.getpid(), node, self.settings.run
            )
            found.write(self.settings.folder)
        except BaseException:
            self.stop()
            raise
        self.running = Servers("", "", "", "", self.settings.folder)  # the servers belong to the caller now
        say(servers.description)
        if self.settings.open_at is not None:
            say(
                self.settings.open_at.invitation(
                    servers.kind, self.settings.broker_port or BROKER_PORT, self.settings.redis_port or REDIS_PORT
                )
            )
        return servers

    def stop(self) -> None:
        """Stop the servers that do not belong to the caller. Idempotent."""
        starting, self._starting = self._starting, []
        try:
            for server in starting:
                server.stop()
        finally:
            self.running.stop()

    def __enter__(self) -> PendingServers:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # The steps.

    def _choice(self, what: str, steps: Mapping[str, tuple[str, ...]]) -> Choice:
        mode = self.settings.mode
        named = {step: getattr(self, f"_{what}_{step}") for step in steps[mode]}
        return Choice("Redis" if what == "redis" else what, mode, named)

    def _finished(self, starting: Starting[S]) -> S:
        """Wait until a server answers and return it; from then on `running` stops it."""
        self._starting.remove(starting)
        return starting.finish()

    def _begun(self, starting: Starting[S]) -> Starting[S]:
        self._starting.append(starting)
        return starting

    # given

    def _broker_given(self) -> Finish:
        return _given(self.settings.broker_url, BROKER_VARIABLE, check_broker)

    def _redis_given(self) -> Finish:
        return _given(self.settings.redis_url, REDIS_VARIABLE, check_redis)

    # already listening

    def _broker_listening(self) -> Finish:
        port = self.settings.machine.amqp_port
        return _listening(f"amqp://guest:guest@{LOOPBACK}:{port}/%2F", port, check_broker)

    def _redis_listening(self) -> Finish:
        port = self.settings.machine.redis_port
        return _listening(f"redis://{LOOPBACK}:{port}/0", port, check_redis)

    # private

    def _broker_private(self) -> Finish:
        binaries = self.settings.machine.rabbitmq()
        if binaries is None:
            raise Unavailable("rabbitmq-server, rabbitmqctl, erl and epmd are not all on PATH or in the usual places")
        place, port = self.home / "rabbitmq", self.settings.broker_port
        starting = self._begun(PrivateRabbitMQ.begin(binaries, place, port=port, open_at=self.settings.open_at))

        def finish(say: Say) -> FoundServer:
            say("starting a private RabbitMQ")
            node = self.node = self._finished(starting)
            self.running.children += node.children
            self.running.on_stop.insert(0, node.discard)
            return FoundServer(node.url, f"private {node.version} at {LOOPBACK}:{node.port}", temporary=True)

        return finish

    def _redis_private(self) -> Finish:
        binary = self.settings.machine.redis()
        if binary is None:
            raise Unavailable("neither redis-server nor valkey-server is on PATH or in the usual places")
        return self._redis_of("private", self._begin_redis(binary))

    # installed

    def _broker_installed(self) -> Finish:
        if reason := debian.why_not(self.settings.machine):
            raise Unavailable(reason)
        names = debian.missing(self.settings.machine)
        if not names and self.settings.mode == "auto":
            raise Unavailable("the binaries are installed already")

        def finish(say: Say) -> FoundServer:
            if names:
                debian.install(names, self.settings.machine, say)
            return self._broker_private()(say)

        return finish if names else self._broker_private()

    # embedded

    def _broker_embedded(self) -> Finish:
        starting = self._begin_embedded()

        def finish(say: Say) -> FoundServer:
            server = self.embedded = self._finished_redis(starting)
            server.empty(EMBEDDED_BROKER_DATABASE)  # removes queues of a killed launcher
            description = f"embedded {_described(server)}, for everything"
            return FoundServer(
                server.database(EMBEDDED_BROKER_DATABASE), description, temporary=not self.settings.durable
            )

        return finish

    def _redis_embedded(self) -> Finish:
        return self._redis_of("embedded", self._begin_embedded())

    def _begin_embedded(self) -> Starting[PrivateRedis]:
        binary = self.settings.machine.embedded_redis()
        if binary is None:
            package = self.settings.machine.embedded_package
            raise Unavailable(f"the Python package {package} is not installed, or not for this platform")
        return self._begin_redis(binary)

    def _begin_redis(self, binary: Path) -> Starting[PrivateRedis]:
        home, port = self.home / "redis", self.settings.redis_port

        def end() -> None:
            if not self.settings.unsaved():
                forget(home)

        if not self.settings.durable:
            self.running.on_stop.insert(0, end)
        durable = self.settings.durable or self.settings.unsaved()
        return self._begun(PrivateRedis.begin(binary, home, port=port, durable=durable, open_at=self.settings.open_at))

    def _redis_of(self, kind: str, starting: Starting[PrivateRedis]) -> Finish:
        def finish(say: Say) -> FoundServer:
            server = self._finished_redis(starting)
            return FoundServer(server.url, f"{kind} {_described(server)}", temporary=not self.settings.durable)

        return finish

    def _finished_redis(self, starting: Starting[PrivateRedis]) -> PrivateRedis:
        server = self._finished(starting)
        self.running.children.append(server.child)
        return server


def _described(server: PrivateRedis) -> str:
    note = f" ({server.note})" if server.note else ""
    return f"{server.version} at {LOOPBACK}:{server.port}{note}"


def _given(url: str | None, variable: str, check: Callable[[str], str]) -> Finish:
    if not url:
        raise Unavailable(f"no URL given, and {variable} is not set")
    return lambda _: FoundServer(url, f"{check(url)} at {redact(url)}, as given")


def _listening(url: str, port: int, check: Callable[..., str]) -> Finish:
    if not listens(port):
        raise Unavailable(f"nothing listens on port {port}")
    return lambda _: FoundServer(url, f"{check(url, timeout=LOCAL_TIMEOUT)} already listening at {LOOPBACK}:{port}")
