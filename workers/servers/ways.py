"""The ways to a broker and to a Redis, a method each, named as the steps in modes.py.

Each searches, or begins to start a process, and returns its slow part; or raises Unavailable (see choice.py).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from workers.servers import debian
from workers.servers.checks import check_broker, check_redis, redact
from workers.servers.choice import Finish, FoundServer, Unavailable
from workers.servers.ports import LOOPBACK, listens
from workers.servers.private_rabbitmq import PrivateRabbitMQ, refusal
from workers.servers.private_redis import PrivateRedis, forget
from workers.servers.process import Starting
from workers.servers.running import BROKER_VARIABLE, REDIS_VARIABLE, Say
from workers.servers.startup import Startup

EMBEDDED_BROKER_DATABASE = 1  # apart from the league, so that each database shows only its own keys
LOCAL_TIMEOUT = 3.0  # seconds to wait for a server that listens on a well-known port


class RedisWays:
    """The ways to a Redis."""

    def __init__(self, startup: Startup) -> None:
        self._startup, self._settings = startup, startup.settings

    def given(self) -> Finish:
        return _given(self._settings.redis_url, REDIS_VARIABLE, check_redis)

    def listening(self) -> Finish:
        port = self._settings.machine.redis_port
        return _listening(f"redis://{LOOPBACK}:{port}/0", port, check_redis)

    def private(self) -> Finish:
        binary = self._settings.machine.redis()
        if binary is None:
            raise Unavailable("neither redis-server nor valkey-server is on PATH or in the usual places")
        return self._finish("private", self._begin(binary))

    def embedded(self) -> Finish:
        return self._finish("embedded", self.begin_embedded())

    def begin_embedded(self) -> Starting[PrivateRedis]:
        """Begin to start the server of a pip package. Raises Unavailable without the package."""
        machine = self._settings.machine
        binary = machine.embedded_redis()
        if binary is None:
            raise Unavailable(
                f"the Python package {machine.embedded_package} is not installed, or not for this platform"
            )
        return self._begin(binary)

    def ready(self, starting: Starting[PrivateRedis]) -> PrivateRedis:
        """Wait until the server answers; from then on it is stopped with the others."""
        server = self._startup.finish(starting)
        self._startup.running.children.append(server.child)
        return server

    def _begin(self, binary: Path) -> Starting[PrivateRedis]:
        settings, home = self._settings, self._startup.home / "redis"

        def end() -> None:
            if not settings.unsaved():
                forget(home)

        if not settings.durable:
            self._startup.running.on_stop.insert(0, end)
        durable = settings.durable or settings.unsaved()
        return self._startup.begin(
            PrivateRedis.begin(binary, home, port=settings.redis_port, durable=durable, open_at=settings.open_at)
        )

    def _finish(self, kind: str, starting: Starting[PrivateRedis]) -> Finish:
        def finish(say: Say) -> FoundServer:
            server = self.ready(starting)
            return FoundServer(server.url, f"{kind} {_described(server)}", temporary=not self._settings.durable)

        return finish


class BrokerWays:
    """The ways to a broker; `redis` starts the embedded one. Afterwards `node` or `embedded` is the started server."""

    def __init__(self, startup: Startup, redis: RedisWays) -> None:
        self._startup, self._settings, self._redis = startup, startup.settings, redis
        self.node: PrivateRabbitMQ | None = None
        self.embedded_redis: PrivateRedis | None = None

    def given(self) -> Finish:
        return _given(self._settings.broker_url, BROKER_VARIABLE, check_broker)

    def listening(self) -> Finish:
        port = self._settings.machine.amqp_port
        return _listening(f"amqp://guest:guest@{LOOPBACK}:{port}/%2F", port, check_broker)

    def private(self) -> Finish:
        binaries = self._settings.machine.rabbitmq()
        if binaries is None:
            raise Unavailable("rabbitmq-server, rabbitmqctl, erl and epmd are not all on PATH or in the usual places")
        place, port = self._startup.home / "rabbitmq", self._settings.broker_port
        if reason := refusal(place):
            raise Unavailable(reason)
        starting = self._startup.begin(
            PrivateRabbitMQ.begin(binaries, place, port=port, open_at=self._settings.open_at)
        )

        def finish(say: Say) -> FoundServer:
            say("starting a private RabbitMQ")
            node = self.node = self._startup.finish(starting)
            self._startup.running.children += node.children
            self._startup.running.on_stop.insert(0, node.discard)
            return FoundServer(node.url, f"private {node.version} at {LOOPBACK}:{node.port}", temporary=True)

        return finish

    def installed(self) -> Finish:
        machine = self._settings.machine
        if reason := debian.why_not(machine):
            raise Unavailable(reason)
        names = debian.missing(machine)
        if not names and self._settings.mode == "auto":
            raise Unavailable("the binaries are installed already")

        def finish(say: Say) -> FoundServer:
            debian.install(names, machine, say)
            return self.private()(say)

        return finish if names else self.private()

    def embedded(self) -> Finish:
        starting = self._redis.begin_embedded()

        def finish(say: Say) -> FoundServer:
            server = self.embedded_redis = self._redis.ready(starting)
            server.empty(EMBEDDED_BROKER_DATABASE)  # removes queues of a killed launcher
            return FoundServer(
                server.database(EMBEDDED_BROKER_DATABASE),
                f"embedded {_described(server)}, for everything",
                temporary=not self._settings.durable,
            )

        return finish


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
