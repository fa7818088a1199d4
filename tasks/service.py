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
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, TypeVar, overload

from tasks import spellings
from tasks.retrying import RetryOn as RetryOn
from tasks.service_options import RETRIES, ServiceOptions, is_generator
from tasks.service_options import Spec as Spec
from tasks.topology import ROLE_TASKS
from warren.errors import ConfigurationError

F = TypeVar("F", bound=Callable[..., Any])

LONGEST_ROLE = 80  # bytes of a role's name, which is part of names of queues


@dataclass(frozen=True)
class Subscribed:
    """The subscription of a handler. `latest`: only the newest event; otherwise all, `bound` of which may wait.

    `retained`: the newest event that was fired before it subscribed comes first.
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

    `gather`: "greedy" runs a batch as soon as nothing more is waiting, so a lone call never sits out a timer. "exactly"
    waits for `batch` calls, as msagent's `batch` does. A number waits for that many. `wait`: s after which a batch
    leaves with fewer.

    `isolate` (default: where there is a response), `bound` (only without a response): see Spec. `retry_on`: exceptions
    after which a call runs again a little later: classes, or a RetryOn that says more. `time_limit`: s that a run may
    take before TimeLimitExceeded is raised in it; `hard_time_limit`: s until its worker ends, if it still runs.
    `priorities`: number of levels that `solver.options(priority=...)` may give its calls. `delays` (only without a
    response): `solver.options(delay=...)` may have its calls wait in the broker.

    An `async def` method runs in an event loop of its worker, up to `concurrency` calls of it at a time (CONCURRENCY by
    default; batches, where it has those), while other services go on. Raises ConfigurationError for values that make no
    sense, and for a generator.
    """
    options = ServiceOptions(
        response, batch, wait, gather, retries, isolate, bound, concurrency, RetryOn.of(retry_on), time_limit,
        hard_time_limit, priorities, delays,
    )  # fmt: skip
    if problems := options.problems():
        raise ConfigurationError([f"@service: {problem}" for problem in problems])
    return options.mark if method is None else options.mark(method)


register = spellings.register_by(service)


def event_handler(event: str, *, latest: bool = False, bound: int = 1000, retained: bool = True) -> Callable[[F], F]:
    """Subscribe a method of a Worker to `event`: it is called with each payload, in the order of firing.

    `latest=True`: a worker that was busy gets only the newest. Otherwise up to `bound` events wait for it, and the
    oldest are dropped when there are more. A worker that starts later, or again, first gets the newest fired before;
    `retained=False`: it does not. An `async def` method runs in the event loop of the worker, for one event at a time.
    """
    if bound < 1:
        raise ConfigurationError(f"@event_handler({event!r}): bound={bound}: at least one event has to fit")

    def mark(function: Any) -> Any:
        if is_generator(function):
            raise ConfigurationError(
                f"@event_handler({event!r}): {function.__name__} is a generator, so nothing of it would run; "
                "use no yield"
            )
        function.__subscribed__ = Subscribed(event, latest, bound, retained)
        return function

    return mark


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
