"""Clients and services on a broker in memory, without servers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import redis

from tasks import codec
from tasks.amqp import frames
from tasks.amqp.messages import LOST, Replies
from tasks.brokers import LinkLost
from tasks.client.rpc import Client
from tasks.client.solver import Solver
from tasks.middleware import Middleware, own_headers
from tasks.service import Spec
from tasks.testing import InMemoryBroker
from tasks.topology import Topology

TOPOLOGY = Topology("memory")
ADD = Spec("actor.add")
ONCE = Spec("actor.once", retries=0)
PUSH = Spec("actor.push", response=False, bound=1)


class Directory:
    """A directory of services."""

    def __init__(self, *specs: Spec) -> None:
        self._known = {spec.name: spec for spec in specs}
        self.delays: list[tuple[str, int]] = []

    def known(self) -> dict[str, Spec]:
        return self._known

    def note_delay(self, name: str, milliseconds: int) -> None:
        self.delays.append((name, milliseconds))

    def find(self, name: str) -> Spec | None:
        return self._known.get(name)


def app_of(broker: InMemoryBroker, claims: Any = None) -> Any:
    """Return the part of an app that a client needs. `revoked`: ids of cancelled calls."""
    revoked: list[str] = []
    return SimpleNamespace(
        warren_broker=broker,
        warren_claims=claims,
        control=SimpleNamespace(revoke=revoked.append),
        revoked=revoked,
        conf=SimpleNamespace(result_backend="redis://127.0.0.1:1/0"),
    )


def client_of(broker: InMemoryBroker, claims: Any = None, patience: float = 60.0) -> Client:
    return Client(app_of(broker, claims), TOPOLOGY, Directory(ADD, ONCE, PUSH), patience)  # type: ignore[arg-type]


def solver_of(
    broker: InMemoryBroker, patience: float = 60.0, claims: Any = None, middleware: Sequence[Middleware] = ()
) -> Solver:
    solver = Solver(app_of(broker, claims), TOPOLOGY, patience=patience, middleware=middleware)
    solver._directory = Directory(ADD, ONCE, PUSH)  # type: ignore[assignment]
    return solver


class Kept:
    """A stand-in for Redis that holds bodies. `stored`: the number of bodies stored so far; `lasts`: of each, in ms."""

    def __init__(self) -> None:
        self.bodies: dict[str, bytes] = {}
        self.lasts: list[int | None] = []
        self.marks: set[str] = set()
        self.stored = 0
        self.claims: Any = None

    def get_encoder(self) -> Any:
        return redis.Redis().get_encoder()

    def set(self, key: str, body: bytes, px: int | None = None, ex: int | None = None) -> None:
        if ex is not None:  # a mark of a used claim, not a body
            self.marks.add(key)
            return
        self.bodies[key] = body
        self.lasts.append(px)
        self.stored += 1

    def exists(self, key: str) -> int:
        return int(key in self.bodies or key in self.marks)

    @contextmanager
    def pipeline(self, transaction: bool = True) -> Iterator[Kept]:
        yield self

    def execute(self) -> None:
        """Do nothing: the pipeline's commands have already run."""

    def get(self, key: str) -> bytes | None:
        return self.bodies.get(key)

    def unlink(self, key: str) -> None:
        self.bodies.pop(key, None)


class Service:
    """Serves one service in a thread of its own: `function` gets the arguments.

    `taken`: the arguments of its calls; `headers`: those of its callers.
    """

    def __init__(
        self,
        broker: InMemoryBroker,
        spec: Spec,
        function: Callable[..., Any],
        lost: bool = False,
        claims: Any = None,
    ) -> None:
        self.taken: list[Any] = []
        self.headers: list[dict[str, Any]] = []
        self._broker, self._spec, self._function, self._lost = broker, spec, function, lost
        self._stopping, self._claims = threading.Event(), claims
        self._queue = TOPOLOGY.service_queue(spec.name, spec.response, spec.bound)
        self._link = self._connect()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _connect(self) -> Any:
        link = self._broker.connect()
        link.declare(self._queue)
        link.consume(self._queue.name, "calls")
        return link

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                for delivery in self._link.drain(0.01):
                    self._serve(delivery)
            except LinkLost:
                try:
                    self._link = self._connect()
                except LinkLost:
                    self._stopping.wait(0.01)

    def _serve(self, delivery: Any) -> None:
        asked = frames.read_properties(delivery.properties)
        args, kwargs, _ = codec.decode(delivery.body)
        self.taken.append(args)
        self.headers.append(own_headers(asked.headers))
        out: list[bytes] = []
        if asked.reply_to:
            result = codec.encode(self._function(*args, **kwargs), self._claims)
            out = Replies(1, self._link.frame_max).write(
                asked.reply_to, asked.correlation_id, result, LOST if self._lost else ""
            )
        self._link.send(b"".join([*out, frames.ack(1, delivery.tag)]))

    def close(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._link.close()

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def declare(broker: InMemoryBroker, spec: Spec) -> str:
    """Declare the queue of a service, without a worker; return its name."""
    queue = TOPOLOGY.service_queue(spec.name, spec.response, spec.bound)
    broker.connect().declare(queue)
    return str(queue.name)


def take(broker: InMemoryBroker, queue: str, number: int) -> list[Any]:
    """Consume `number` calls of `queue`, one at a time; return the first argument of each."""
    link, taken = broker.connect(), list[Any]()
    link.consume(queue, "taker", prefetch=1)
    limit = time.monotonic() + 60.0
    while len(taken) < number:
        assert time.monotonic() < limit, f"{len(taken)} of {number} calls came"
        for delivery in link.drain(0.05):
            taken.append(codec.decode(delivery.body)[0][0])
            link.send(frames.ack(1, delivery.tag))
    link.close()
    return taken
