"""Which RabbitMQ and Redis a run uses: given, already listening, private, installed, or embedded, in that order."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from warren.environment import secret
from warren.errors import BrokerError, ConfigurationError, UnknownName
from workers.servers import debian, record
from workers.servers.checks import check_broker, check_redis, kind_of, redact
from workers.servers.exposure import BROKER_PORT, REDIS_PORT, OpenAddress, open_address
from workers.servers.folder_lock import FolderLock
from workers.servers.machine import Machine
from workers.servers.private_rabbitmq import PrivateRabbitMQ
from workers.servers.private_redis import PrivateRedis, forget
from workers.servers.process import LOOPBACK, Child, listens

BROKER_VARIABLE, REDIS_VARIABLE = "WARREN_BROKER_URL", "WARREN_REDIS_URL"
EMBEDDED_BROKER_DATABASE = 1  # queues and league apart, so that looking into either shows only its own keys
CALM = 60.0  # s after which an earlier end of a private server counts no more
LOCAL_TIMEOUT = 3.0  # seconds to wait for whatever listens on a well-known port

BROKER_STEPS = {
    "auto": ("given", "listening", "private", "installed", "embedded"),
    "external": ("given",),
    "local": ("listening",),
    "private": ("private",),
    "install": ("installed",),
    "embedded": ("embedded",),
}
# The embedded server is a full Redis, so nothing is ever installed for want of one.
REDIS_STEPS = {
    "auto": ("given", "listening", "private", "embedded"),
    "external": ("given",),
    "local": ("listening",),
    "private": ("private", "embedded"),
    "install": ("private",),
    "embedded": ("embedded",),
}
MODES = tuple(BROKER_STEPS)

Say = Callable[[str], object]


class Unavailable(Exception):
    """A step has nothing to offer, for this reason; the next is tried."""


class Revival:
    """A private server that ends now and then: started again after growing pauses."""

    def __init__(self) -> None:
        self._deaths, self._died_at, self._again_at = 0, 0.0, 0.0

    def check(self, child: Child, say: Say, restarts: int) -> None:
        """Of a child that is not alive: note its death, or start it again when it is time."""
        now = time.monotonic()
        if self._again_at:
            if now >= self._again_at:
                self._again_at = 0.0
                child.start_again()
            return
        self._deaths = 1 if now - self._died_at > CALM else self._deaths + 1
        self._died_at = now
        if self._deaths > restarts:
            raise BrokerError(f"{child.death()}\n{child.name} ended {self._deaths} times; giving up ({restarts=})")
        wait = min(0.1 * 2 ** (self._deaths - 1), 5.0)
        self._again_at = now + wait
        say(f"{child.death()}\nstarting {child.name} again, with what it held, in {wait:g} s")


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
    _revivals: dict[Child, Revival] = field(default_factory=dict, repr=False)

    def environment(self) -> dict[str, str]:
        """What a role's process needs to find them: to be passed as environment, which only its owner can see."""
        return {BROKER_VARIABLE: self.broker_url, REDIS_VARIABLE: self.redis_url}

    def check(self) -> None:
        """Log in to both again. Raises BrokerError with the one cause: of a dead private server, its last lines."""
        if death := self.dead():
            raise BrokerError(death)
        check_broker(self.broker_url)
        check_redis(self.redis_url)

    def dead(self) -> str | None:
        """The last lines of the first private server that ended unasked, or None; costs nothing, call it often."""
        return next((child.death() for child in self.children if not child.alive), None)

    def revive(self, say: Say, restarts: int) -> None:
        """Start a private server that ended unasked again, on the same port and with what it held; call it often.

        Raises BrokerError, with its last lines, when one has ended more than `restarts` times within CALM s each.
        """
        for child in self.children:
            if not child.alive:
                self._revivals.setdefault(child, Revival()).check(child, say, restarts)

    def stop(self) -> None:
        """Stop what was started, all at the same time. Safe to call twice; bounded by the grace times (process.py)."""
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


def given_urls(
    mode: str, broker_url: str | None, redis_url: str | None, environment: Mapping[str, str] = os.environ
) -> tuple[str | None, str | None]:
    """(broker's, Redis's) URL as given here or in the environment. Raises ConfigurationError for what does not fit."""
    if mode not in BROKER_STEPS:
        raise UnknownName("broker mode", mode, MODES)
    if mode in ("auto", "external"):
        broker_url = broker_url or secret(BROKER_VARIABLE, environment)
        redis_url = redis_url or secret(REDIS_VARIABLE, environment)
    elif broker_url or redis_url:
        raise ConfigurationError(f"broker={mode} takes no URLs, yet one is given; use broker=external, or leave it out")
    if broker_url and not redis_url and kind_of(broker_url) == "redis":
        redis_url = broker_url
    if mode == "external":
        wanted = (("broker", broker_url, BROKER_VARIABLE), ("Redis", redis_url, REDIS_VARIABLE))
        if problems := [
            f"broker=external needs a {name} URL; set {variable}" for name, url, variable in wanted if not url
        ]:
            raise ConfigurationError(problems)
    return broker_url, redis_url


def acquire(
    mode: str = "auto",
    broker_url: str | None = None,
    redis_url: str | None = None,
    *,
    folder: Path,
    run: str | None = None,
    say: Say = print,
    durable: bool = False,
    broker_port: int | None = None,
    redis_port: int | None = None,
    listen: str | None = None,
    machine: Machine | None = None,
    lock: FolderLock | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Servers:
    """Find or start a broker and a Redis for the run in `folder`; returns once both have answered a login.

    mode -- `auto` takes the first that works of the steps below; every other mode takes one of them alone.
      `external`: the URLs given here, or in WARREN_BROKER_URL and WARREN_REDIS_URL (or in files
      that WARREN_BROKER_URL_FILE and WARREN_REDIS_URL_FILE name). A redis:// broker may be both.
      `local`: what listens on this machine's ports 5672 (as guest) and 6379 (without a password).
      `private`: started from the installed binaries, on free loopback ports, files under `folder`/servers.
      `install`: like private, after installing the distribution's packages (Debian or Ubuntu, as root or by sudo).
      `embedded`: one server from a pip package as broker, result backend and pool; needs nothing installed.
    run -- the run's name on the servers, for the record in its folder.
    durable -- whether a private Redis has the data of an earlier one in `folder`, and leaves its own for the next.
    broker_port, redis_port -- ports for private servers; default any free one.
    listen -- an address of this machine, or 0.0.0.0, at which private servers listen besides loopback, on the usual
      ports, for who has the password in WARREN_PASSWORD. What passes there is not encrypted.
    lock -- of `folder`, where the caller has taken it already; it is left to the caller then.
    say -- called with each line of progress; the last one says what was chosen.

    A URL that was given and fails is an error, never a reason to take another server. Raises ConfigurationError for
    settings that make no sense and BrokerError, naming what was tried and why it failed.
    """
    broker_url, redis_url = given_urls(mode, broker_url, redis_url, environment)
    opened = None if listen is None else open_address(listen, mode, environment)
    if opened is not None:
        broker_port, redis_port = broker_port or BROKER_PORT, redis_port or REDIS_PORT
    settings = _Settings(
        mode, broker_url, redis_url, folder, say, durable, broker_port, redis_port, opened, machine or Machine(),
        run, lock,
    )  # fmt: skip
    return _Chooser(settings).choose()


@dataclass(frozen=True)
class _Settings:
    mode: str
    broker_url: str | None = field(repr=False)
    redis_url: str | None = field(repr=False)
    folder: Path
    say: Say
    durable: bool
    broker_port: int | None
    redis_port: int | None
    open_at: OpenAddress | None
    machine: Machine
    run: str | None
    lock: FolderLock | None


@dataclass(frozen=True)
class _Found:
    url: str = field(repr=False)
    description: str


class _Chooser:
    """The steps, each a method that returns what it found or raises Unavailable with the reason."""

    def __init__(self, settings: _Settings) -> None:
        self.set = settings
        self.home = settings.folder / record.FOLDER
        self.node: PrivateRabbitMQ | None = None
        self.embedded: PrivateRedis | None = None
        self.running = Servers("", "", "", "", settings.folder)  # filled in step by step; stopped whole on failure

    def choose(self) -> Servers:
        self._lock()
        try:
            broker = self._first("broker", BROKER_STEPS[self.set.mode])
            if self.embedded is not None and not self.set.redis_url:
                redis = _Found(self.embedded.url, "")  # the one server is all three
            else:
                redis = self._first("redis", REDIS_STEPS[self.set.mode])
            servers = self.running
            servers.broker_url, servers.redis_url = broker.url, redis.url
            servers.kind = kind_of(broker.url)
            servers.description = "; ".join(
                filter(None, (f"broker: {broker.description}", redis.description and f"Redis: {redis.description}"))
            )
            node = self.node.node.as_dict() if self.node else None
            found = record.Record(
                broker.url, redis.url, servers.kind, servers.description, os.getpid(), node, self.set.run
            )
            found.write(self.set.folder)
        except BaseException:
            self.running.stop()
            raise
        self.set.say(servers.description)
        if self.set.open_at is not None:
            self.set.say(
                self.set.open_at.invitation(
                    servers.kind, self.set.broker_port or BROKER_PORT, self.set.redis_port or REDIS_PORT
                )
            )
        return servers

    def _lock(self) -> None:
        lock = self.set.lock or FolderLock.take(self.set.folder)
        self.running.on_stop = [lambda: record.remove(self.set.folder)]
        if self.set.lock is None:
            self.running.on_stop.append(lock.release)

    def _first(self, what: str, steps: tuple[str, ...]) -> _Found:
        reasons = []
        for step in steps:
            try:
                found: _Found = getattr(self, f"_{what}_{step}")()
                return found
            except Unavailable as reason:
                reasons.append(f"{step}: {reason}")
            except BrokerError as error:
                # A server that was named must work; of those we only looked for, the next may.
                if len(steps) == 1 or step == "given":
                    raise
                self.set.say(f"passed over: {error}")
                reasons.append(f"{step}: {error}")
        lines = "\n".join(f"  {reason}" for reason in reasons)
        remedy = "broker=auto tries each way in turn; broker=embedded needs nothing but its Python package"
        raise BrokerError(
            f"no {'broker' if what == 'broker' else 'Redis'} with broker={self.set.mode}:\n{lines}\n{remedy}"
        )

    # --- given ---

    def _broker_given(self) -> _Found:
        return _given(self.set.broker_url, BROKER_VARIABLE, check_broker)

    def _redis_given(self) -> _Found:
        return _given(self.set.redis_url, REDIS_VARIABLE, check_redis)

    # --- already listening ---

    def _broker_listening(self) -> _Found:
        port = self.set.machine.amqp_port
        return _listening(f"amqp://guest:guest@{LOOPBACK}:{port}/%2F", port, check_broker)

    def _redis_listening(self) -> _Found:
        port = self.set.machine.redis_port
        return _listening(f"redis://{LOOPBACK}:{port}/0", port, check_redis)

    # --- private ---

    def _broker_private(self) -> _Found:
        binaries = self.set.machine.rabbitmq()
        if binaries is None:
            raise Unavailable("rabbitmq-server, rabbitmqctl, erl and epmd are not all on PATH or in the usual places")
        self.set.say("starting a private RabbitMQ")
        place, port = self.home / "rabbitmq", self.set.broker_port
        self.node = PrivateRabbitMQ.start(binaries, place, port=port, open_at=self.set.open_at)
        self.running.children += self.node.children
        self.running.on_stop.insert(0, self.node.discard)
        return _Found(self.node.url, f"private {self.node.version} at {LOOPBACK}:{self.node.port}")

    def _redis_private(self) -> _Found:
        binary = self.set.machine.redis()
        if binary is None:
            raise Unavailable("neither redis-server nor valkey-server is on PATH or in the usual places")
        server = self._start_redis(binary)
        return _Found(server.url, f"private {server.version} at {LOOPBACK}:{server.port}")

    # --- installed ---

    def _broker_installed(self) -> _Found:
        if reason := debian.why_not(self.set.machine):
            raise Unavailable(reason)
        if names := debian.missing(self.set.machine):
            debian.install(names, self.set.machine, self.set.say)
        elif self.set.mode == "auto":
            raise Unavailable("the binaries are there already")
        return self._broker_private()

    # --- embedded ---

    def _broker_embedded(self) -> _Found:
        self.embedded = self._start_embedded()
        description = f"embedded {self.embedded.version} at {LOOPBACK}:{self.embedded.port}, for everything"
        return _Found(self.embedded.database(EMBEDDED_BROKER_DATABASE), description)

    def _redis_embedded(self) -> _Found:
        server = self._start_embedded()
        return _Found(server.url, f"embedded {server.version} at {LOOPBACK}:{server.port}")

    def _start_embedded(self) -> PrivateRedis:
        binary = self.set.machine.embedded_redis()
        if binary is None:
            raise Unavailable(
                f"the Python package {self.set.machine.embedded_package} is not installed, or not for this platform"
            )
        return self._start_redis(binary)

    def _start_redis(self, binary: Path) -> PrivateRedis:
        server = PrivateRedis.start(
            binary, self.home / "redis", port=self.set.redis_port, durable=self.set.durable, open_at=self.set.open_at
        )
        self.running.children.append(server.child)
        if not self.set.durable:
            self.running.on_stop.insert(0, lambda: forget(self.home / "redis"))
        return server


def _given(url: str | None, variable: str, check: Callable[[str], str]) -> _Found:
    if not url:
        raise Unavailable(f"no URL given, and {variable} is not set")
    return _Found(url, f"{check(url)} at {redact(url)}, as given")


def _listening(url: str, port: int, check: Callable[..., str]) -> _Found:
    if not listens(port):
        raise Unavailable(f"nothing listens on port {port}")
    return _Found(url, f"{check(url, timeout=LOCAL_TIMEOUT)} already listening at {LOOPBACK}:{port}")
