"""The caller's side: name a service, get its answer, never say which process gives it.

with Solver() as solver: ...                                 # or solver.close(); in a loop, async with, aclose()
action = solver.call("actor.policy_eval", state)             # blocks for the answer
handle = solver.send("actor.policy_eval", state)             # does not: handle.done(), .result(), .cancel()
for action in solver.map("actor.policy_eval", states, 16): ...   # in order, 16 under way at a time
solver.gather([("actor.policy_eval", state), ...], then="learner.learn")   # a chord
action = await solver.acall("actor.policy_eval", state)
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from typing import Any

import redis

from tasks import brokers, context
from tasks.admin.registry import Directory
from tasks.client import background
from tasks.client.async_client import CLOSE_WITHIN, ONE_WAY_WINDOW, AsyncClient
from tasks.client.call_errors import CLOSED, unserved
from tasks.client.celery_rpc import StockClient
from tasks.client.chord import gather
from tasks.client.deadline import checked
from tasks.client.future import Handle
from tasks.client.rpc import Client
from tasks.service import Spec, defined, role_of
from tasks.topology import Topology
from warren.errors import BrokerError, ConfigurationError

DEADLINE = 60.0  # s that a call may take, unless it says otherwise
# s that a service may be unknown or without a worker before a call of it fails; a run from a file, which restarts its
# workers, gives more (see workers/launch/services_run.py).
PATIENCE = float(os.environ.get("WARREN_PATIENCE") or 10.0)
# s that a service may be unknown, since none of its workers has ever started. Environments of a run from a file start
# when all services do: what is unknown to them is misspelt, and they are told sooner.
UNKNOWN_FOR = float(os.environ.get("WARREN_UNKNOWN_FOR") or PATIENCE)

LOOKUP_EVERY = 0.1  # s between look-ups of a service that is not known yet
UNSET: Any = object()


class Solver:
    """Calls services of one run, by default that of the environment. Safe to use from any thread and event loop.

    Each thread and each event loop has a connection of its own, from its first call on; `close`, `aclose` and the ends
    of `with` and `async with` close them all, and a loop's goes with the loop too.

    `deadline`: s that a call may take by default (None: any time). `patience`: s that a service may be without a
    worker, or the broker away, before calls fail for it.
    """

    def __init__(
        self,
        app: Any = None,
        topology: Topology | None = None,
        *,
        deadline: float | None = DEADLINE,
        patience: float = PATIENCE,
    ) -> None:
        if app is None or topology is None:
            app, topology = context.current()
        self.app, self.topology, self.deadline, self.patience = app, topology, checked(deadline), patience
        self._directory = Directory(app, topology)
        self._specs: dict[str, Spec] = {}
        self._local = threading.local()
        self._clients: weakref.WeakSet[Any] = weakref.WeakSet()
        self._bridges: dict[asyncio.AbstractEventLoop, AsyncClient] = {}
        self._entering = threading.Lock()  # while a client is made, or all are closed
        self._closed = False
        self._fast = brokers.of(app).direct_reply

    def call(self, service: str, /, *args: Any, deadline: float | None = UNSET, **kwargs: Any) -> Any:
        """What the service returns for these arguments; None at once for a service without a response.

        Raises NoSuchService, NobodyServing, DeadlinePassed, WorkerLost and RemoteFailure (all CallError), BrokerError
        when the broker is away, CodecError for arguments that cannot be sent, ConfigurationError for a `deadline` that
        no call can have.
        """
        handle = self.send(service, *args, deadline=deadline, **kwargs)
        return handle.result() if handle.spec.response else None

    def send(self, service: str, /, *args: Any, deadline: float | None = UNSET, **kwargs: Any) -> Handle:
        """Start a call and return its handle. For a service without a response it ends when the broker has the call."""
        limit = self.deadline if deadline is UNSET else checked(deadline)
        spec = self._specs.get(service) or self._find(service)
        client: Client | StockClient = self._client()
        if spec.response:
            return client.submit(spec, args, kwargs, limit)
        self._make_room(client)
        return client.submit(spec, args, kwargs, None)

    def map(
        self, service: str, calls: Iterable[Any], in_flight: int = 16, deadline: float | None = UNSET
    ) -> Iterator[Any]:
        """The result for each of `calls` (one argument each, or a tuple of several), in order, as they come.

        At most `in_flight` are under way. The first that fails raises its error. For a service without a response the
        results are None, each as soon as the broker has its call. Raises ConfigurationError for `in_flight` under 1.
        """
        if in_flight < 1:
            raise ConfigurationError(f"map: in_flight={in_flight} would send nothing; give 1 or more")
        limit = self.deadline if deadline is UNSET else checked(deadline)
        spec = self._specs.get(service) or self._find(service)
        return self._map(spec, calls, in_flight, limit if spec.response else None)

    def _map(self, spec: Spec, calls: Iterable[Any], in_flight: int, limit: float | None) -> Iterator[Any]:
        client = self._client()
        arguments = (call if isinstance(call, tuple) else (call,) for call in calls)
        flying: deque[Handle] = deque()
        exhausted = False
        while True:
            ended = sum(handle.ended for handle in flying)
            room = in_flight - len(flying) + ended
            if room and not exhausted:
                batch = list(itertools.islice(arguments, room))
                exhausted = len(batch) < room
                flying += client.submit_all(spec, batch, limit) if batch else ()
            while flying and flying[0].ended:
                yield flying.popleft().outcome()
            if not flying:
                if exhausted:
                    return
                continue
            client.wait(flying[0])

    def gather(self, calls: Sequence[Any], then: str, on_error: str | None = None) -> Any:
        """A chord: `calls` ((service, *arguments) each), then service or task `then` with the list of their results.

        Returns the AsyncResult of `then`. When a call fails, `then` does not run, its result is that error, and
        `on_error` (a service or task) is called with the id of the chord.
        """
        header = [
            self.app.signature(self._find(name).name, args=tuple(args), options={"argsrepr": "", "ignore_result": True})
            for name, *args in calls
        ]
        failed = self.app.signature(self._task(on_error), immutable=False) if on_error else None
        return gather(self.app, header, self.app.signature(self._task(then), options={"argsrepr": ""}), failed)

    async def acall(self, service: str, /, *args: Any, deadline: float | None = UNSET, **kwargs: Any) -> Any:
        """`call` for asyncio."""
        return await self.asend(service, *args, deadline=deadline, **kwargs)

    def asend(self, service: str, /, *args: Any, deadline: float | None = UNSET, **kwargs: Any) -> asyncio.Future[Any]:
        """`send` for asyncio: a future of the result, on the running loop. Cancelling it cancels the call.

        For a service without a response it ends when the broker has the call: await it now and then, since calls wait
        in this process while too many are unconfirmed.
        """
        loop = asyncio.get_running_loop()
        limit = self.deadline if deadline is UNSET else checked(deadline)
        bridge: AsyncClient | None = getattr(self._local, "bridge", None)
        if bridge is None or bridge.loop is not loop:
            bridge = self._local.bridge = self._bridge(loop)
        spec = self._specs.get(service)
        if spec is not None:
            return bridge.submit(spec, args, kwargs, limit if spec.response else None)
        task = loop.create_task(self._find_and_send(bridge, service, args, kwargs, limit))
        bridge.unsent.add(task)
        task.add_done_callback(bridge.unsent.discard)
        return task

    async def _find_and_send(
        self, bridge: AsyncClient, service: str, args: Any, kwargs: Any, limit: float | None
    ) -> Any:
        finding = bridge.finding.get(service)
        if finding is None:  # one look-up for all calls of a service that is not known yet
            finding = bridge.finding[service] = bridge.loop.create_task(self._find_in(bridge, service))
        spec = await asyncio.shield(finding)
        future = bridge.submit(spec, args, kwargs, limit if spec.response else None)
        bridge.unsent.discard(asyncio.current_task())
        return await future

    async def _find_in(self, bridge: AsyncClient, service: str) -> Spec:
        """`_find` without a thread that waits."""
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

    def amap(
        self, service: str, calls: Iterable[Any], in_flight: int = 16, deadline: float | None = UNSET
    ) -> AsyncGenerator[Any, None]:
        """`map` for asyncio: an asynchronous generator."""
        if in_flight < 1:
            raise ConfigurationError(f"amap: in_flight={in_flight} would send nothing; give 1 or more")
        return self._amap(service, calls, in_flight, self.deadline if deadline is UNSET else checked(deadline))

    async def _amap(
        self, service: str, calls: Iterable[Any], in_flight: int, limit: float | None
    ) -> AsyncGenerator[Any, None]:
        flying: deque[asyncio.Future[Any]] = deque()
        for call in calls:
            if len(flying) >= in_flight:
                yield await flying.popleft()
            flying.append(self.asend(service, *(call if isinstance(call, tuple) else (call,)), deadline=limit))
        while flying:
            yield await flying.popleft()

    def retrieve(self, worker: object, method: str, /, *args: Any, **kwargs: Any) -> Any:
        """`call` in msagent's form: the worker (an object, a class, or a role's name), its method, the arguments.

        Raises ConfigurationError for an object that is no worker.
        """
        role = worker if isinstance(worker, str) else role_of(worker)
        return self.call(f"{role}.{method}", *args, **kwargs)

    retrive = retrieve  # the seeds' spelling

    def flush(self, timeout: float = 10.0) -> int:
        """Wait until the broker has all one-way calls that this thread sent; how many it does not have.

        Raises BrokerError when some were given up since the last time this was asked: they are lost.
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
        """One-way calls that were given up, ever, by clients of this Solver that are still in use."""
        return sum(client.table.failures.lost for client in list(self._clients))

    def close(self) -> None:
        """Close the connections of every thread and loop; calls under way fail, and later ones raise BrokerError.

        One-way calls get CLOSE_WITHIN s to arrive at the broker first.
        """
        clients = list(self._clients)
        limit = time.monotonic() + CLOSE_WITHIN
        while any(client.unconfirmed for client in clients) and time.monotonic() < limit:
            for client in clients:
                client.tend()
            time.sleep(LOOKUP_EVERY / 10)
        with self._entering:
            self._closed, self._local = True, threading.local()
            bridges, self._bridges = self._bridges, {}
        for bridge in bridges.values():
            bridge.close()
        for client in list(self._clients):
            client.close()

    async def aclose(self) -> None:
        """`close` for asyncio."""
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

    def _look_up(self, service: str, waited: float) -> Spec | None:
        """Look once; None while it is not known. Raises NoSuchService once it has been `waited` for long enough."""
        try:
            spec = self._directory.find(service)
        except redis.RedisError as error:
            raise BrokerError(f"cannot look up service {service}: Redis is away: {error}") from error
        if spec is not None:
            self._specs[service] = spec
        elif waited >= min(self.patience, UNKNOWN_FOR):
            raise unserved(self._directory, service, waited)
        return spec

    def _task(self, name: str) -> str:
        """`name` as a task: a service's full name, or any other task by its own."""
        spec = self._directory.find(name) or defined().get(name)
        return spec.name if spec is not None else name

    def _client(self) -> Any:
        client = getattr(self._local, "client", None)
        if client is None or self._local.pid != os.getpid():
            client = self._local.client = self._new_client()
            self._local.pid = os.getpid()
        return client

    def _new_client(self, may_block: bool = True) -> Any:
        if self._closed:
            raise BrokerError(CLOSED)
        kind = Client if self._fast else StockClient
        client = kind(self.app, self.topology, self._directory, self.patience, may_block=may_block)
        self._clients.add(client)
        return client

    def _bridge(self, loop: asyncio.AbstractEventLoop) -> AsyncClient:
        """Return the client of a loop. Those of loops that have ended are closed."""
        with self._entering:
            for ended in [one for one in self._bridges if one.is_closed()]:
                background.submit(self._bridges.pop(ended).close)
            if loop not in self._bridges:
                self._bridges[loop] = AsyncClient(loop, self._new_client(may_block=False))
            return self._bridges[loop]

    def _make_room(self, client: Any) -> None:
        """Back-pressure: wait while too many one-way calls are unconfirmed."""
        if client.under_way >= ONE_WAY_WINDOW:
            while client.unconfirmed > ONE_WAY_WINDOW // 2:
                client.look_for(0.2)


_default: list[Solver] = []


def default() -> Solver:
    """The Solver of this process's run, which `@remote` stubs use."""
    if not _default:
        _default.append(Solver())
    return _default[0]


def remote(stub: Callable[..., Any] | None = None, /, *, service: str | None = None) -> Any:
    """Make a function a stub of the service of the same name, as in Oneagent: its body is never run.

    @remote
    def policy_eval(): pass

    action = policy_eval(state)
    """

    def make(function: Callable[..., Any]) -> Callable[..., Any]:
        name = service or function.__name__
        if name == "<lambda>":
            raise ConfigurationError("@remote: a lambda has no name to call; give service='ROLE.METHOD'")

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            return default().call(name, *args, **kwargs)

        return call

    return make if stub is None else make(stub)
