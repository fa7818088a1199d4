"""Workers served in threads of a test's own process, without RabbitMQ and Redis, and a Solver that calls them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, NamedTuple

from celery.worker import state

from tasks.app.redelivery import Deliveries
from tasks.client.solver import Solver
from tasks.compat import App
from tasks.events import EventDispatcher
from tasks.middleware import Middleware
from tasks.testing.broker import InMemoryBroker
from tasks.testing.store import MemoryStore
from tasks.topology import Topology
from tasks.worker.consumer_loop import ConsumerLoop
from tasks.worker.hooks import Hooks, boot, shut_down
from tasks.worker.server import register
from warren.errors import ConfigurationError

NOWHERE = "redis://127.0.0.1:1/0"  # never connected to
STARTS_WITHIN = 60.0  # s
DEADLINE = 20.0  # s that a call may take, unless a test says otherwise
PATIENCE = 5.0  # s that a service may be unknown, or its worker away


class Served(NamedTuple):
    """`solver` calls the workers, `events` fires events for them, `broker` can be cut, stopped and blocked."""

    solver: Solver
    events: EventDispatcher
    broker: InMemoryBroker


@contextmanager
def serving(
    *workers: Any, middleware: Sequence[Middleware] = (), deadline: float | None = DEADLINE
) -> Iterator[Served]:
    """Serve `workers` until the end of the block. `middleware`: at both ends; `deadline`: of calls, in s.

    Calls, batches, failures, events, `async def` services, retries and cancelling work as on RabbitMQ. There are no
    chords, no stock clients and no time to live in queues. Raises ConfigurationError for workers that cannot be served.
    """
    store, broker, topology = MemoryStore(), InMemoryBroker(), Topology("testing")
    app: Any = App("testing", broker="memory://", backend=NOWHERE, set_as_current=False)
    app.warren_broker, app.warren_topology = broker, topology
    app.warren_redis, app.warren_deliveries = store, Deliveries(NOWHERE, topology, store)
    loop = ConsumerLoop(app, topology, workers, register(app, workers, Hooks.of(middleware)))
    solver = Solver(app, topology, deadline=deadline, patience=PATIENCE, middleware=middleware)
    events = EventDispatcher(app, topology)

    def revoke(ids: str | list[str]) -> None:
        state.revoked.update([ids] if isinstance(ids, str) else ids)
        loop.revoked()

    app.control = SimpleNamespace(revoke=revoke)
    stops, state.should_stop = state.should_stop, None  # a service that raises SystemExit sets it: put back at the end
    boot(middleware, "worker@testing")
    loop.start("worker@testing")
    try:
        if not loop.ready.wait(STARTS_WITHIN):
            raise loop.failure or ConfigurationError(f"the workers were not served within {STARTS_WITHIN:.0f} s")
        yield Served(solver, events, broker)
    finally:
        solver.close()
        events.close()
        loop.stop()
        shut_down(middleware, "worker@testing")
        state.should_stop = stops
