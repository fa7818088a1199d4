"""The caller's side: it names a service and gets the answer, whichever process gives it.

with Solver() as solver: ...                                 # or solver.close(); in a loop, async with, aclose()
action = solver.call("actor.policy_eval", state)             # blocks for the answer
handle = solver.send("actor.policy_eval", state)             # does not: handle.done(), .result(), .cancel()
for action in solver.map("actor.policy_eval", states, 16): ...   # in order, 16 under way at a time
solver.gather([("actor.policy_eval", state), ...], then="learner.learn")   # a chord
action = await solver.acall("actor.policy_eval", state)
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
import weakref
from collections.abc import Sequence
from typing import Any

import redis
from celery.utils.log import get_logger

from tasks import brokers, context
from tasks.admin.registry import Directory
from tasks.client import background
from tasks.client.async_client import CLOSE_WITHIN, ONE_WAY_WINDOW, AsyncClient
from tasks.client.call_errors import CLOSED, unserved
from tasks.client.celery_rpc import StockClient
from tasks.client.deadline import checked
from tasks.client.driver import Driver
from tasks.client.extras import Extras
from tasks.client.forms import Forms
from tasks.client.idle import Idle, Lease
from tasks.client.rpc import Client
from tasks.middleware import Middleware, checked_middleware
from tasks.service import Spec, defined
from tasks.topology import Topology
from warren.errors import BrokerError

DEADLINE = 60.0  # s that a call may take, unless it says otherwise
# s that a service may be unknown or without a worker before a call of it fails; a run from a file, which restarts its
# workers, gives more (see workers/launch/kinds/services_run.py).
PATIENCE = float(os.environ.get("WARREN_PATIENCE") or 10.0)
# s that a service may be unknown, since none of its workers has ever started. In a run from a file environments start
# only when all services have, so a service that they do not know is misspelt: there calls fail sooner.
UNKNOWN_FOR = float(os.environ.get("WARREN_UNKNOWN_FOR") or PATIENCE)

SPECS_LAST = 30.0  # s until a service, which may be deployed anew with other settings, is looked up again
LOOKUP_EVERY = 0.1  # s between look-ups of a service that is not known yet

logger = get_logger(__name__)


_solvers: weakref.WeakSet[Solver] = weakref.WeakSet()  # this process's


class Solver(Forms):
    """Calls services of one run, by default that of the environment. Safe to use from any thread and event loop.

    Each thread and each event loop has a connection of its own, from its first call on; that of a thread that has ended
    passes to the next thread. `close`, `aclose` and the ends of `with` and `async with` close them all; a loop's also
    closes with the loop.

    `deadline`: s that a call may take by default (None: any time). `patience`: s that a service may be without a
    worker, or the broker away, before calls fail for it. `middleware`: around all of its calls; None: the middleware
    that the process has installed (tasks.middleware.install). `options` gives a view of it whose calls have headers, or
    another deadline.
    """

    def __init__(
        self,
        app: Any = None,
        topology: Topology | None = None,
        *,
        deadline: float | None = DEADLINE,
        patience: float = PATIENCE,
        middleware: Sequence[Middleware] | None = None,
    ) -> None:
        if app is None or topology is None:
            app, topology = context.current()
        self.app, self.topology, self.deadline, self.patience = app, topology, checked(deadline), patience
        self._middleware = checked_middleware(middleware)
        extras = Extras(self._middleware, {})
        self._extras = None if extras.empty else extras
        self._directory = Directory(app, topology)
        self._specs: dict[str, Spec] = {}
        self._look_again_at = time.monotonic() + SPECS_LAST
        self._begin()
        self._closed = False
        self._fast = brokers.of(app).direct_reply
        _solvers.add(self)

    def _begin(self) -> None:
        """Begin without a client."""
        self._local, self._idle = threading.local(), Idle()
        self._clients: weakref.WeakSet[Any] = weakref.WeakSet()
        self._bridges: dict[asyncio.AbstractEventLoop, AsyncClient] = {}
        self._entering = threading.Lock()  # held while a client is made, or all are listed or closed

    def after_fork(self) -> None:
        """Begin anew in a child: the parent sends the calls of its clients, and closes their connections."""
        self._parents = [*self._clients, *self._bridges.values()]  # kept: their end might close what the parent uses
        self._begin()

    def flush(self, timeout: float = 10.0) -> int:
        """Wait until the broker has all one-way calls that this thread sent; return how many it does not have.

        Raises BrokerError when some were given up since the last `flush`: they are lost.
        """
        client, limit = self._client(), time.monotonic() + timeout
        while client.unconfirmed and (left := limit - time.monotonic()) > 0:
            client.look_for(min(0.1, left))
        lost, first = client.table.failures.take()
        if lost:
            raise BrokerError(f"{lost} one-way calls are lost; the first: {first}") from first
        return int(client.unconfirmed)

    @property
    def failed(self) -> int:
        """Return how many one-way calls were ever given up by clients of this Solver that are still in use."""
        return sum(client.table.failures.lost for client in self._all_clients())

    def close(self) -> None:
        """Close the connections of every thread and loop; calls under way fail, and later ones raise BrokerError.

        One-way calls get CLOSE_WITHIN s to arrive at the broker first.
        """
        clients = self._all_clients()
        limit = time.monotonic() + CLOSE_WITHIN
        while any(client.unconfirmed for client in clients) and time.monotonic() < limit:
            for client in clients:
                client.tend()
            time.sleep(LOOKUP_EVERY / 10)
        with self._entering:
            self._closed, self._local = True, threading.local()
            bridges, self._bridges = self._bridges, {}
        self._idle.clear()
        for bridge in bridges.values():
            bridge.close()
        for client in self._all_clients():
            client.close()

    async def aclose(self) -> None:
        """Close as `close` does, without blocking the event loop."""
        loop = asyncio.get_running_loop()
        with self._entering:
            bridge = self._bridges.pop(loop, None)
        if bridge is not None:
            await bridge.aclose()
        await background.run(loop, self.close)

    def __enter__(self) -> Solver:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Solver:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    # Names and connections.

    def _find(self, service: str) -> Spec:
        """Return the service of that name, full or bare; wait for one that is not known yet."""
        started = time.monotonic()
        while (spec := self._look_up(service, time.monotonic() - started)) is None:
            time.sleep(LOOKUP_EVERY)
        return spec

    async def _find_in(self, bridge: AsyncClient, service: str) -> Spec:
        """Find a service as `_find` does, without blocking the event loop."""
        try:
            started = time.monotonic()
            while True:
                waited = time.monotonic() - started
                spec = await background.run(bridge.loop, self._look_up, service, waited)
                if spec is not None:
                    return spec
                await asyncio.sleep(LOOKUP_EVERY)
        finally:
            del bridge.finding[service]

    def _known(self, service: str) -> Spec | None:
        """Return the known Spec of a service; all are looked up again every SPECS_LAST s, in another thread."""
        if time.monotonic() > self._look_again_at:
            self._look_again_at = time.monotonic() + SPECS_LAST
            if self._specs:
                background.submit(self._look_again)
        return self._specs.get(service)

    def _look_again(self) -> None:
        for service in list(self._specs):
            try:
                self._specs[service] = self._directory.find(service) or self._specs[service]
            except redis.RedisError as error:
                logger.debug("the services known so far were not looked up again: %s", error)
                return

    def _look_up(self, service: str, waited: float) -> Spec | None:
        """Look a service up once; return None while it is not known, or Redis is away.

        Raises NoSuchService, or BrokerError without Redis, once the caller has `waited` long enough.
        """
        try:
            spec = self._directory.find(service)
        except redis.RedisError as error:
            if waited < self.patience:
                return None
            raise BrokerError(f"cannot look up service {service}: Redis is away: {error}") from error
        if spec is not None:
            self._specs[service] = spec
        elif waited >= min(self.patience, UNKNOWN_FOR):
            raise unserved(self._directory, service, waited)
        return spec

    def _task(self, name: str) -> str:
        """Return the task called `name`: a service's full name, or any other task's own."""
        spec = self._directory.find(name) or defined().get(name)
        return spec.name if spec is not None else name

    def _client(self) -> Driver:
        lease: Lease | None = getattr(self._local, "lease", None)
        if lease is None or lease.pid != os.getpid():
            client = None if self._closed else self._idle.take()
            if client is None:
                with self._entering:
                    client = self._new_client()
            lease = self._local.lease = Lease(client, self._idle)
        return lease.client

    def _all_clients(self) -> list[Any]:
        with self._entering:
            return list(self._clients)

    def _new_client(self, may_block: bool = True) -> Any:
        """Make a client, unless this is closed. Its caller holds `_entering`."""
        if self._closed:
            raise BrokerError(CLOSED)
        kind = Client if self._fast else StockClient
        client = kind(self.app, self.topology, self._directory, self.patience, may_block=may_block)
        self._clients.add(client)
        return client

    def _bridge_here(self) -> AsyncClient:
        """Return the client of the running loop."""
        loop = asyncio.get_running_loop()
        bridge: AsyncClient | None = getattr(self._local, "bridge", None)
        if bridge is None or bridge.loop is not loop:
            bridge = self._local.bridge = self._bridge(loop)
        return bridge

    def _bridge(self, loop: asyncio.AbstractEventLoop) -> AsyncClient:
        """Return the client of a loop. Those of loops that have ended are closed."""
        with self._entering:
            for ended in [one for one in self._bridges if one.is_closed()]:
                background.submit(self._bridges.pop(ended).close)
            if loop not in self._bridges:
                self._bridges[loop] = AsyncClient(loop, self._new_client(may_block=False))
            return self._bridges[loop]

    def _make_room(self, client: Driver) -> None:
        """Wait while too many one-way calls are unconfirmed (back-pressure)."""
        if client.under_way >= ONE_WAY_WINDOW:
            while client.unconfirmed > ONE_WAY_WINDOW // 2:
                client.look_for(0.2)


def _after_fork() -> None:
    for solver in list(_solvers):
        solver.after_fork()


os.register_at_fork(after_in_child=_after_fork)
