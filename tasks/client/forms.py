"""The forms in which services are called, of a Solver and of its views with options."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from tasks import brokers, spellings
from tasks.client import maps
from tasks.client.arguments import Args, of_call, whole
from tasks.client.async_client import AsyncClient
from tasks.client.chord import gather
from tasks.client.deadline import checked
from tasks.client.driver import Driver
from tasks.client.extras import Extras
from tasks.client.future import Handle
from tasks.client.stubs import stub_of
from tasks.middleware import Middleware, checked_headers
from tasks.service import Spec, role_of
from warren.errors import BrokerError, ConfigurationError

T = TypeVar("T")

UNSET: Any = object()


class Forms(ABC):
    """The forms of a call. `deadline`: s that a call may take by default (None: any time)."""

    app: Any
    deadline: float | None
    _extras: Extras | None  # None: calls are plain
    _middleware: Sequence[Middleware]

    def call(self, service: str, /, *args: Any, deadline: float | None = UNSET, **kwargs: Any) -> Any:
        """Return what the service returns for these arguments; None at once for a service without a response.

        Arguments given as one Args are the service's, all of them: Args(state, deadline=3.0).

        Raises NoSuchService, NobodyServing, DeadlinePassed, WorkerLost and RemoteFailure (all CallError), BrokerError
        when the broker is away, CodecError for arguments that cannot be sent, ConfigurationError for a `deadline` that
        no call can have.
        """
        handle = self.send(service, *args, deadline=deadline, **kwargs)
        return handle.result() if handle.spec.response else None

    def send(self, service: str, /, *args: Any, deadline: float | None = UNSET, **kwargs: Any) -> Handle:
        """Start a call and return its handle. A one-way call ends when the broker has confirmed it."""
        if args and type(args[0]) is Args:
            args, kwargs = whole(args, kwargs)
        limit = self.deadline if deadline is UNSET else checked(deadline)
        spec = self._known(service) or self._find(service)
        client: Driver = self._client()
        if not spec.response:
            self._make_room(client)
            limit = None
        if self._extras is not None:
            return self._extras.send(client, spec, Args(*args, **kwargs), limit)
        return client.submit(spec, args, kwargs, limit)

    def map(
        self, service: str, calls: Iterable[Any], in_flight: int = 16, deadline: float | None = UNSET
    ) -> Iterator[Any]:
        """Return the result for each of `calls` (one argument each, a tuple of several, or Args), in order.

        At most `in_flight` are under way. The first that fails raises its error, and the others are cancelled, as they
        are when the iteration is given up. For a service without a response the results are None, each as soon as the
        broker has its call, and nothing is cancelled. Raises ConfigurationError for `in_flight` under 1.
        """
        if in_flight < 1:
            raise ConfigurationError(f"map: in_flight={in_flight} would send nothing; give 1 or more")
        limit = self.deadline if deadline is UNSET else checked(deadline)
        spec = self._known(service) or self._find(service)
        client, extras = self._client(), self._extras
        if not spec.response:
            limit = None

        def send(batch: list[Args]) -> Iterable[Handle]:
            if extras is None:
                return client.submit_all(spec, batch, limit)
            return (extras.send(client, spec, one, limit) for one in batch)

        return maps.results(client, spec, calls, in_flight, send)

    def gather(self, calls: Sequence[Any], then: str, on_error: str | None = None) -> Any:
        """Start a chord: `calls`, then service or task `then` with the list of their results.

        A call is (service, *arguments), or (service, Args(...)) for arguments by keyword. Returns the AsyncResult of
        `then`. When a call fails, `then` does not run, its result is that error, and `on_error` (a service or task) is
        called with the id of the chord. Raises BrokerError when the broker is away.
        """
        plain = {"argsrepr": "", "kwargsrepr": "", "ignore_result": True}
        header = [self._signature(self._find(name), of_call(values), plain) for name, *values in calls]
        failed = self.app.signature(self._task(on_error), immutable=False) if on_error else None
        try:
            return gather(self.app, header, self._signature(self._task(then), Args(), {"argsrepr": ""}), failed)
        except brokers.GONE as error:
            raise BrokerError(f"the chord was not sent, or in part alone, since the broker is away: {error}") from error

    def _signature(self, to: Spec | str, given: Args, options: dict[str, Any]) -> Any:
        name, spec = (to, None) if isinstance(to, str) else (to.name, to)
        if self._extras is not None:
            outgoing = self._extras.outgoing(name, spec, given)
            given = Args(*outgoing.args, **outgoing.kwargs)
            options = {**options, "task_id": outgoing.call.id, "headers": outgoing.call.headers}
        if spec is not None and spec.priorities:
            level = (self._extras and self._extras.priority) or 0
            options = {**options, "priority": brokers.of(self.app).priority(level, spec.priorities)}
        return self.app.signature(name, args=given.args, kwargs=given.kwargs, options=options)

    async def acall(self, service: str, /, *args: Any, deadline: float | None = UNSET, **kwargs: Any) -> Any:
        """Call a service from asyncio, as `call` does."""
        return await self.asend(service, *args, deadline=deadline, **kwargs)

    def asend(self, service: str, /, *args: Any, deadline: float | None = UNSET, **kwargs: Any) -> asyncio.Future[Any]:
        """Start a call from asyncio; return a future of the result. Cancelling it cancels the call.

        A one-way call ends when the broker has confirmed it. Await some of them: while too many are unconfirmed,
        further calls wait in this process.
        """
        if args and type(args[0]) is Args:
            args, kwargs = whole(args, kwargs)
        return self._asend(service, args, kwargs, self.deadline if deadline is UNSET else checked(deadline))

    def _asend(self, service: str, args: Any, kwargs: Any, limit: float | None) -> asyncio.Future[Any]:
        bridge = self._bridge_here()
        spec = self._known(service)
        if spec is not None:
            return self._submit(bridge, spec, args, kwargs, limit)
        task = bridge.loop.create_task(self._find_and_send(bridge, service, args, kwargs, limit))
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
        future = self._submit(bridge, spec, args, kwargs, limit)
        bridge.unsent.discard(asyncio.current_task())
        return await future

    def _submit(
        self, bridge: AsyncClient, spec: Spec, args: Any, kwargs: Any, limit: float | None
    ) -> asyncio.Future[Any]:
        if not spec.response:
            limit = None
        if self._extras is not None:
            return self._extras.submit(bridge, spec, Args(*args, **kwargs), limit)
        return bridge.submit(spec, args, kwargs, limit)

    def amap(
        self, service: str, calls: Iterable[Any], in_flight: int = 16, deadline: float | None = UNSET
    ) -> AsyncGenerator[Any, None]:
        """Return an asynchronous generator of what `map` yields."""
        if in_flight < 1:
            raise ConfigurationError(f"amap: in_flight={in_flight} would send nothing; give 1 or more")
        limit = self.deadline if deadline is UNSET else checked(deadline)

        def send(given: Args) -> asyncio.Future[Any]:
            return self._asend(service, given.args, given.kwargs, limit)

        def is_one_way() -> bool:
            return (spec := self._known(service)) is not None and not spec.response

        return maps.aresults(send, calls, in_flight, is_one_way)

    retrieve = retrive = spellings.retrieve_by(role_of)

    def options(
        self,
        *,
        deadline: float | None = UNSET,
        headers: Mapping[str, Any] | None = None,
        priority: int | None = None,
        delay: float | None = None,
    ) -> Forms:
        """Return a view of this Solver all of whose calls have these options, in every form.

        solver.options(deadline=5.0, headers={"tenant": "a"}).call("actor.policy_eval", state)

        `headers`: texts, numbers and booleans by name, besides those that this has already; the service finds them in
        `tasks.middleware.current_call().headers`. `priority`: a level of a service that has `priorities`, 0 the lowest;
        a call of another service raises ConfigurationError. `delay`: s after which calls without a response are run, of
        a service that has `delays`. Chords have no deadline and no delay. A view costs little and shares the
        connections. Raises ConfigurationError for options that no call can have.
        """
        limit = self.deadline if deadline is UNSET else checked(deadline)
        before = self._extras or Extras((), {})
        level = before.priority if priority is None else priority
        all_headers = {**before.headers, **checked_headers(headers or {})}
        later = before.delay if delay is None else delay
        return _View(self, limit, Extras(self._middleware, all_headers, level, later))

    def stub(self, kind: Callable[..., T], role: str = "") -> T:
        """Return an object with the type of `kind` whose methods call services of its role; `async def` ones await.

        `kind`: a worker's class, or a Protocol with the calls of its services, for a worker that is not imported here
        or runs in batches. `role`: by default the worker's, or the class's `role` or name, in lower case. All arguments
        are the service's: options are those of `solver.options(...).stub(...)`. Raises ConfigurationError for what
        names no service.
        """
        made: T = stub_of(self, kind, role)
        return made

    # Implemented by the Solver.

    @abstractmethod
    def _known(self, service: str) -> Spec | None: ...

    @abstractmethod
    def _find(self, service: str) -> Spec: ...

    @abstractmethod
    async def _find_in(self, bridge: AsyncClient, service: str) -> Spec: ...

    @abstractmethod
    def _task(self, name: str) -> str: ...

    @abstractmethod
    def _client(self) -> Driver: ...

    @abstractmethod
    def _bridge_here(self) -> AsyncClient: ...

    @abstractmethod
    def _make_room(self, client: Driver) -> None: ...


class _View(Forms):
    """A Solver with options."""

    def __init__(self, solver: Forms, deadline: float | None, extras: Extras) -> None:
        self._solver, self.app, self.deadline = solver, solver.app, deadline
        self._middleware, self._extras = solver._middleware, None if extras.empty else extras

    def _known(self, service: str) -> Spec | None:
        return self._solver._known(service)

    def _find(self, service: str) -> Spec:
        return self._solver._find(service)

    async def _find_in(self, bridge: AsyncClient, service: str) -> Spec:
        return await self._solver._find_in(bridge, service)

    def _task(self, name: str) -> str:
        return self._solver._task(name)

    def _client(self) -> Driver:
        return self._solver._client()

    def _bridge_here(self) -> AsyncClient:
        return self._solver._bridge_here()

    def _make_room(self, client: Driver) -> None:
        self._solver._make_room(client)
