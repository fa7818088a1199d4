"""Services without servers: a consumer loop on the broker in memory, and a caller that writes messages by hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from celery import Celery
from celery.worker import state as worker_state

from support.waiting import PATIENCE, until
from tasks import codec
from tasks.amqp import frames
from tasks.amqp.frames import Delivery
from tasks.amqp.messages import DIRECT_REPLY, NO_LINKS, Envelope, Ids, expires_at
from tasks.app.redelivery import Deliveries
from tasks.middleware import Middleware
from tasks.service import Worker, services_of
from tasks.testing import InMemoryBroker
from tasks.topology import Topology
from tasks.worker import consumer_loop, outcomes, server
from tasks.worker.hooks import Hooks

TOPOLOGY = Topology("memory")


class Store:
    """A stand-in for the part of Redis that counts deliveries, with pipelines. `away`: every command fails."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.lasting: dict[str, int] = {}  # key -> s until it expires
        self.away = False
        self._results: list[Any] = []

    def mget(self, keys: Sequence[str]) -> list[bytes | None]:
        self._here()
        return [self.values.get(key) for key in keys]

    @contextmanager
    def pipeline(self, transaction: bool = True) -> Iterator[Store]:
        self._results = []
        yield self

    def get(self, key: str) -> None:
        self._results.append(self.values.get(key))

    def set(self, key: str, value: bytes, nx: bool = False, ex: int = 0) -> None:
        if not nx or key not in self.values:
            self.values[key] = value
            if ex:
                self.lasting[key] = ex
        self._results.append(True)

    def incr(self, key: str) -> None:
        self.values[key] = b"%d" % (int(self.values.get(key, b"0")) + 1)
        self._results.append(self.values[key])

    def expire(self, key: str, seconds: int) -> None:
        self._results.append(True)

    def delete(self, key: str) -> None:
        self._results.append(self.values.pop(key, None))

    def execute(self) -> list[Any]:
        self._here()
        return self._results

    def _here(self) -> None:
        if self.away:
            raise redis.ConnectionError("away")


class InMemoryServing:
    """`workers` served on a broker in memory, and a link that sends calls and receives their answers."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *workers: Worker, middleware: Sequence[Middleware] = ()
    ) -> None:
        nothing = SimpleNamespace(
            enter=lambda specs: list(specs), subscribe=lambda names: list(names), newest=lambda name: None
        )
        monkeypatch.setattr(consumer_loop, "Directory", lambda app, topology: nothing)
        monkeypatch.setattr(consumer_loop, "Retained", lambda app, topology: nothing)
        monkeypatch.setattr(worker_state, "should_stop", None)
        self.dead: list[tuple[Any, str]] = []

        def send_dead_letter(app: Any, letter: Any, reason: str) -> bool:
            self.dead.append((letter, reason))
            return True

        monkeypatch.setattr(outcomes, "send_dead_letter", send_dead_letter)
        self.broker = InMemoryBroker()
        self.app = Celery("memory", broker="memory://", backend="cache+memory://", set_as_current=False)
        self.app.warren_broker, self.app.warren_topology = self.broker, TOPOLOGY
        self.app.warren_deliveries = self.deliveries = Deliveries("redis://127.0.0.1:1", TOPOLOGY)
        self.store = self.deliveries._redis = Store()
        self._workers, self._tasks = workers, server.register(self.app, workers, Hooks.of(middleware))
        self.loop = self.new_loop()
        self.link = self.broker.connect()
        self.link.consume(DIRECT_REPLY, "replies", no_ack=True)
        self.answers: dict[str, Delivery] = {}

    def new_loop(self) -> consumer_loop.ConsumerLoop:
        return consumer_loop.ConsumerLoop(self.app, TOPOLOGY, self._workers, self._tasks)

    def start(self) -> None:
        self.loop.start("worker@memory")
        assert self.loop.ready.wait(PATIENCE)

    def declare(self) -> None:
        """Declare the queues before they have consumers: calls sent until then arrive all at once."""
        for task in self._tasks.values():
            spec = next(one for one in services_of(self._workers[0]) if one.name == task.name)
            self.link.declare(TOPOLOGY.service_queue(spec.name, spec.response, spec.bound))
            self.link.declare(TOPOLOGY.dead_queue(spec.name.partition(".")[0]))

    def send(
        self,
        name: str,
        *args: Any,
        seconds: float | None = None,
        direct: bool = True,
        reply_to: str = "",
        by_keyword: bool = False,
        headers: Mapping[str, Any] | None = None,
    ) -> str:
        """Send a call; return its id. `seconds`: its time to live. `reply_to`: that of a stock Celery client."""
        reply_to = reply_to or (DIRECT_REPLY if direct else "")
        exchange = TOPOLOGY.service.name
        envelope = Envelope(
            1, self.link.frame_max, exchange, name, reply_to=reply_to, time_to_live=seconds, headers=headers
        )
        call_id = self._ids.new()
        expires = b"" if seconds is None else expires_at(seconds)
        arguments = ((), {"key": args[0]}) if by_keyword else (args, {})
        self.link.send(envelope.write(call_id, expires, codec.encode((*arguments, NO_LINKS))))
        return call_id

    _ids = Ids()

    def send_raw(self, name: str, properties: bytes, body: bytes) -> None:
        """Send any bytes to the queue of a service."""
        method = frames.publish_method(1, TOPOLOGY.service.name, name)
        self.link.send(b"".join([method, *frames.content(1, properties, body, self.link.frame_max)]))

    def answer(self, call_id: str) -> Any:
        """Wait for the reply to a call; return its kind and value."""
        until(lambda: call_id in self._read())
        found = self.answers[call_id]
        kind = frames.read_properties(found.properties).type
        return kind, codec.decode(found.body) if found.body else None

    def _read(self) -> dict[str, Delivery]:
        for delivery in self.link.drain(0.0):
            self.answers[frames.read_properties(delivery.properties).correlation_id] = delivery
        return self.answers

    def count(self, name: str, what: str) -> int:
        return int(self.loop.status()["services"][name].get(what, 0))

    def waiting(self, name: str) -> Sequence[Any]:
        return self.broker.waiting(TOPOLOGY.service_queue(name).name)
