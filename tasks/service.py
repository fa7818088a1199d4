"""The programming model: a class of `Worker`, its methods that are services, its methods that handle events.

    class Actor(Worker):
        @service(response=True, batch=64)
        def policy_eval(self, states: list[np.ndarray]) -> list[np.ndarray]: ...

        @event_handler("policy_update", latest=True)
        def update(self, weights: dict) -> None: ...

The service is called `actor.policy_eval` everywhere: by Celery, on the broker, in Flower. Services and handlers of one
process run in one thread, one after another; `async def` ones run in an event loop of the process, which takes turns
with that thread. So they share state without locks.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, TypeVar, overload

from tasks import spellings
from tasks.retrying import RetryOn as RetryOn
from tasks.topology import ONE_WAY_LENGTH, ROLE_TASKS
from warren.errors import ConfigurationError

F = TypeVar("F", bound=Callable[..., Any])

MOST_BATCH = 32_767  # calls; twice as many are what AMQP's basic.qos can count
MOST_PRIORITIES = 10  # levels; RabbitMQ has a queue inside the queue for each
LONGEST_ROLE = 80  # bytes of a role's name, which is part of names of queues

RETRIES = 2  # times that a call is sent again after a worker or the broker died with it
CONCURRENCY = 32  # calls of an `async def` service that run at once in one process, unless it says otherwise


@dataclass(frozen=True)
class Spec:
    """The settings of a service, as its callers and workers know them.

    `minimum`: calls that a batch waits for, for at most `wait` s (None: for as long as it takes). `retries`: how often
    a call is sent again when the worker, or the broker, died with it. `isolate`: when a batch of several calls fails
    as a whole, each is run again alone, so that only those fail that are at fault. `bound`: calls without an answer
    that may wait in the broker; callers are slowed down to the pace of the workers when there are more.
    `concurrency`: calls of it (batches, where it has those) that run at once in a worker's event loop; 0 for a plain
    method, which runs in the thread of the services. `priorities`: levels of priority that its calls may have, 0 for
    none. `delays`: calls without an answer may be sent to be run later.
    """

    name: str
    response: bool = True
    batch: int = 1
    minimum: int = 1
    wait: float | None = None
    retries: int = RETRIES
    isolate: bool = True
    bound: int = ONE_WAY_LENGTH
    concurrency: int = 0
    priorities: int = 0
    delays: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Return it as a dict, for the run's directory of services."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Spec:
        """Make a Spec of a dict. Fields of a newer version are ignored; those that an older one lacks have defaults."""
        known = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in values.items() if name in known})


@dataclass(frozen=True)
class Subscribed:
    """The subscription of a handler. `latest`: only the newest event; otherwise all, `bound` of which may wait.

    `retained`: first of all the newest that was fired before it subscribed.
    """

    event: str
    latest: bool = False
    bound: int = 1000
    retained: bool = True


@overload
def service(method: F, /) -> F: ...
@overload
def service(
    *,
    response: bool = True,
    batch: int = 1,
    wait: float | None = None,
    gather: str | int = "greedy",
    retries: int = RETRIES,
    isolate: bool | None = None,
    bound: int | None = None,
    concurrency: int | None = None,
    retry_on: RetryOn | type[BaseException] | Sequence[type[BaseException]] | None = None,
    time_limit: float | None = None,
    hard_time_limit: float | None = None,
    priorities: int = 0,
    delays: bool = False,
) -> Callable[[F], F]: ...
def service(
    method: Any = None,
    /,
    *,
    response: bool = True,
    batch: int = 1,
    wait: float | None = None,
    gather: str | int = "greedy",
    retries: int = RETRIES,
    isolate: bool | None = None,
    bound: int | None = None,
    concurrency: int | None = None,
    retry_on: RetryOn | type[BaseException] | Sequence[type[BaseException]] | None = None,
    time_limit: float | None = None,
    hard_time_limit: float | None = None,
    priorities: int = 0,
    delays: bool = False,
) -> Any:
    """Make a method of a Worker a service.

    `response`: the caller blocks for the result; False: it does not, and a failure is seen in the log
    and the dead-letter queue. `batch` over 1: the method receives a list of up to `batch` calls' arguments (the
    argument itself where a call has one, else their tuple) and returns as many results, in order; an exception in the
    place of a result fails that call alone.

    `gather`: "greedy" runs a batch as soon as nothing more is waiting, so a lone call never sits out a timer;
    "exactly" waits for `batch` calls, as msagent's `batch` does; a number waits for that many. `wait`: s after which a
    batch leaves with fewer.
    `isolate` (default: where there is a response), `bound` (only without a response): see Spec. `retry_on`: exceptions
    after which a call runs again a little later: classes, or a RetryOn that says more. `time_limit`: s that a run may
    take before TimeLimitExceeded is raised in it; `hard_time_limit`: s until its worker ends, if it still runs.
    `priorities`: number of levels that `solver.options(priority=...)` may give its calls. `delays` (only without a
    response): `solver.options(delay=...)` may have its calls wait in the broker.

    An `async def` method runs in an event loop of its worker, up to `concurrency` calls of it at a time (CONCURRENCY by
    default; batches, where it has those), while other services go on. Raises ConfigurationError for values that make no
    sense, and for a generator.
    """
    again = RetryOn.of(retry_on)
    minimum = gather if isinstance(gather, int) else {"greedy": 1, "exactly": batch}.get(gather, 1)
    problems = _problems_with_batches(batch, gather, minimum, wait)
    problems += _problems_with_limits(time_limit, hard_time_limit)
    problems += _problems_with_queue(response, retries, bound, priorities, delays)
    if concurrency is not None and not 1 <= concurrency * batch <= MOST_BATCH:
        most = f"1 to {MOST_BATCH} calls at a time" + (f", and each batch of it {batch}" if batch > 1 else "")
        problems.append(f"concurrency={concurrency}: a worker runs {most}")

    def mark(function: Any) -> Any:
        is_async, found = inspect.iscoroutinefunction(function), list(problems)
        if _is_generator(function):
            found.append(f"{function.__name__} is a generator: a call has one result; return a list, or send events")
        elif is_async and hard_time_limit is not None:
            found.append(f"hard_time_limit={hard_time_limit}: an `async def` ends at its time_limit; leave this out")
        elif concurrency is not None and not is_async:
            found.append(
                f"concurrency={concurrency}: {function.__name__} is not `async def`, so its calls run one after "
                "another; make it one, or start more workers"
            )
        if found:
            raise ConfigurationError([f"@service: {problem}" for problem in found])
        alone = response if isolate is None else isolate
        held = ONE_WAY_LENGTH if bound is None else bound
        at_once = (concurrency or min(CONCURRENCY, MOST_BATCH // batch)) if is_async else 0
        function.__retry_on__ = again
        function.__time_limits__ = None if time_limit is None else (time_limit, hard_time_limit)
        function.__service__ = Spec(
            function.__name__, response, batch, minimum, wait, retries, alone, held, at_once, priorities, delays
        )
        return function

    if problems and method is None:
        raise ConfigurationError([f"@service: {problem}" for problem in problems])
    return mark if method is None else mark(method)


def _problems_with_batches(batch: int, gather: str | int, minimum: int, wait: float | None) -> list[str]:
    problems = []
    if not 1 <= batch <= MOST_BATCH:
        problems.append(
            f"batch={batch}: a batch holds 1 to {MOST_BATCH} calls; a worker holds two, and AMQP counts to 65535"
        )
    if isinstance(gather, str) and gather not in ("greedy", "exactly"):
        problems.append(f"gather={gather!r}: use 'greedy', 'exactly', or the number of calls to wait for")
    if not 1 <= minimum <= max(batch, 1):
        problems.append(f"gather={gather}: a batch of {batch} waits for 1 to {batch} calls")
    if wait is not None and (wait <= 0 or minimum == 1):
        problems.append(f"wait={wait}: give a time in s over 0, and what to wait for (gather='exactly' or a number)")
    return problems


def _problems_with_queue(response: bool, retries: int, bound: int | None, priorities: int, delays: bool) -> list[str]:
    problems = []
    if priorities != 0 and not 2 <= priorities <= MOST_PRIORITIES:
        problems.append(f"priorities={priorities}: use 2 to {MOST_PRIORITIES} levels, each of which costs the broker")
    if delays and response:
        problems.append("delays=True: only calls without a response can be sent to be run later; add response=False")
    if retries < 0:
        problems.append(f"retries={retries}: use 0 for a method that must not run again after its worker died in it")
    if bound is not None and (bound < 1 or response):
        problems.append(f"bound={bound}: it limits the calls that wait without an answer; give it, from 1, with those")
    return problems


def _problems_with_limits(limit: float | None, hard: float | None) -> list[str]:
    if hard is not None and limit is None:
        return [f"hard_time_limit={hard}: give a shorter time_limit too, after which the call alone fails"]
    if limit is not None and not limit > 0:
        return [f"time_limit={limit}: give a time in s over 0"]
    if limit is not None and hard is not None and not hard > limit:
        return [f"hard_time_limit={hard}: it must be longer than time_limit={limit}"]
    return []


register = spellings.register_by(service)


def event_handler(event: str, *, latest: bool = False, bound: int = 1000, retained: bool = True) -> Callable[[F], F]:
    """Subscribe a method of a Worker to `event`: it is called with each payload, in the order of firing.

    `latest=True`: a worker that was busy gets only the newest. Otherwise up to `bound` events wait for it, and the
    oldest go when there are more. A worker that starts later, or again, first gets the newest that was fired before;
    `retained=False`: it does not. An `async def` method runs in the event loop of the worker, for one event at a time.
    """
    if bound < 1:
        raise ConfigurationError(f"@event_handler({event!r}): bound={bound}: at least one event has to fit")

    def mark(function: Any) -> Any:
        if _is_generator(function):
            raise ConfigurationError(
                f"@event_handler({event!r}): {function.__name__} is a generator, so nothing of it would run; "
                "use no yield"
            )
        function.__subscribed__ = Subscribed(event, latest, bound, retained)
        return function

    return mark


def _is_generator(function: Any) -> bool:
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


class Worker:
    """Base of classes whose methods are services. Their names begin with `role`: the class's name in lower case.

    A class that does not derive from it is served as well, if a method of it is a service.
    """

    role: ClassVar[str] = ""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for spec in services_of(cls):
            _defined[spec.name] = spec


_defined: dict[str, Spec] = {}  # every service whose class this process has imported


def defined() -> dict[str, Spec]:
    """Return name -> spec of the services whose classes this process has imported."""
    return dict(_defined)


def is_worker(kind: type) -> bool:
    """Return whether objects of this class can be served: it derives from Worker, or a method is a service."""
    return issubclass(kind, Worker) or bool(_marked(kind, "__service__"))


def role_of(worker: object) -> str:
    """Return the first part of the names of a worker's services. Raises ConfigurationError if it is not a worker."""
    kind = worker if isinstance(worker, type) else type(worker)
    if not is_worker(kind):
        raise ConfigurationError(
            f"{kind.__name__} is not a worker: no method of it is marked with @service or @register, and it does not "
            "derive from tasks.service.Worker; give a worker, its class, or the name of a role as text"
        )
    role = getattr(kind, "role", "") or kind.__name__.lower()
    if not (isinstance(role, str) and role.replace("-", "_").isidentifier() and len(role.encode()) <= LONGEST_ROLE):
        raise ConfigurationError(
            f"{kind.__name__}: role={role!r} cannot name a role; use letters, digits, '-' and '_', no dots or spaces, "
            f"and {LONGEST_ROLE} bytes at most"
        )
    return role


def services_of(worker: object) -> list[Spec]:
    """Return a worker's services, sorted by full name. Raises ConfigurationError for a name that is reserved."""
    role, found = role_of(worker), []
    for method, spec in _marked(worker, "__service__"):
        if method in ROLE_TASKS:
            raise ConfigurationError(
                f"{role}.{method}: the names {', '.join(ROLE_TASKS)} are Warren's own; use another"
            )
        found.append(Spec(**{**asdict(spec), "name": f"{role}.{method}"}))
    return sorted(found, key=lambda spec: spec.name)


def handlers_of(worker: object) -> dict[str, Subscribed]:
    """Return method name -> what it subscribes to, of a worker's event handlers."""
    return dict(_marked(worker, "__subscribed__"))


def _marked(worker: object, mark: str) -> list[tuple[str, Any]]:
    kind = worker if isinstance(worker, type) else type(worker)
    members = ((name, inspect.getattr_static(kind, name)) for name in dir(kind))
    return [(name, getattr(member, mark)) for name, member in members if hasattr(member, mark)]
