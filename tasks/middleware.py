"""Hooks for the user's own code around every call, at its caller and in its worker, on every broker.

    class Timed(Middleware):
        def before_run(self, call: Call) -> None:
            call.state["began"] = time.monotonic()

        def after_run(self, call: Call, *, result: Any = None, error: BaseException | None = None) -> None:
            print(call.service, time.monotonic() - call.state["began"], error)

    Serving(app, topology, [Actor()], "actor-0", middleware=[Timed()]).run()

Hooks that are not overridden cost nothing. Several middleware nest: "before" hooks run in the order of the list,
"after" hooks in the opposite one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Protocol

from celery.app.task import Context

from warren.errors import ConfigurationError

MOST_HEADERS = 32_768  # bytes of the names and texts of one call's headers: they travel in one frame of AMQP
LONGEST_NAME = 128  # bytes of a header's name
LARGEST = 1 << 63  # whole numbers are sent in 64 bits, with a sign

# Names with a meaning of their own in the headers of a message: to Celery, to RabbitMQ, to Warren.
RESERVED = frozenset(
    {name for name in vars(Context) if not name.startswith("_")}
    | {"lang", "task", "argsrepr", "kwargsrepr", "compression", "meth", "redelivered", "CC", "BCC"}
)
RESERVED_BEGINNINGS = ("x-death", "x-first-death", "x-last-death", "x-delivery-count", "x-acquired-count", "x-warren-")


class Call:
    """One call, as middleware and `current_call` see it.

    `service`: its full name. `id`: the same however often it is sent or run. `headers`: the caller's own, texts,
    numbers and booleans by name. `tried`: how often this worker has run it before, each time with an exception after
    which its service tries again. `state`: for middleware to keep what it needs between its hooks, on one side.
    """

    __slots__ = ("args", "failed_first", "headers", "id", "kwargs", "service", "state", "tried")

    def __init__(self, service: str, call_id: str, args: Sequence[Any], kwargs: dict[str, Any], headers: Any) -> None:
        self.service, self.id, self.args, self.kwargs = service, call_id, args, kwargs
        self.headers: dict[str, Any] = headers
        self.state: dict[str, Any] = {}
        self.tried = 0
        self.failed_first = 0.0  # when it had first raised that, on the monotonic clock

    def __repr__(self) -> str:
        return f"Call({self.service}, {self.id})"


class Middleware:
    """Base of middleware: override the hooks that are needed. They must not block for long.

    A caller's hooks run in the thread, or event loop, that calls; a worker's in the thread of its services.
    """

    # The caller's.

    def before_send(self, call: Call) -> None:
        """Run before a call is sent; may change its headers and arguments. An exception from it refuses the call."""

    def after_reply(self, call: Call, *, error: BaseException | None = None) -> None:
        """Run when a call has ended for its caller, in the thread that took in its answer. Its errors are logged.

        `error`: what `result()` raises. A call without a response ends when the broker has it.
        """

    # The worker's.

    def before_run(self, call: Call) -> None:
        """Run before the service. An exception from it counts as the service's own."""

    def after_run(self, call: Call, *, result: Any = None, error: BaseException | None = None) -> None:
        """Run after the service, with what it returned or raised. An exception from this hook fails the call.

        It is not run where `before_run` of this or an earlier middleware has raised.
        """

    def after_drop(self, call: Call, reason: str) -> None:
        """Run when a call is not run because nobody needs it any more. `reason`: "expired" or "revoked"."""

    def before_worker_boot(self, worker: str) -> None:
        """Run before a worker process takes its first call; `worker` is its name. An error from it ends the start."""

    def after_worker_shutdown(self, worker: str) -> None:
        """Run after a worker process has run its last call. Its errors are logged."""


def overridden(middleware: Iterable[Middleware], hook: str) -> list[Any]:
    """Return the hooks of that name, in order, of the middleware that overrides them."""
    return [found for one in middleware if (found := hook_of(one, hook)) is not None]


def hook_of(middleware: Middleware, hook: str) -> Any:
    """Return a hook of `middleware`; None where it is not overridden."""
    overrides = getattr(type(middleware), hook) is not getattr(Middleware, hook) or hook in vars(middleware)
    return getattr(middleware, hook) if overrides else None


def checked_middleware(given: Sequence[Any] | None) -> tuple[Middleware, ...]:
    """Return `given`, by default the installed middleware. Raises ConfigurationError for other objects."""
    if given is None:
        return tuple(_installed)
    if isinstance(given, Middleware) or not isinstance(given, Iterable):
        raise ConfigurationError(f"middleware={given!r}: give a list of them")
    wrong = [one for one in given if not isinstance(one, Middleware)]
    if wrong:
        remedy = "give an object of it: NAME()" if isinstance(wrong[0], type) else "derive it from Middleware"
        raise ConfigurationError(
            [f"middleware: {one!r} is not a tasks.middleware.Middleware; {remedy}" for one in wrong]
        )
    return tuple(given)


_installed: list[Middleware] = []


def install(*middleware: Middleware) -> None:
    """Make these the middleware of every Solver and Serving that this process makes from now on without its own."""
    _installed[:] = checked_middleware(middleware)


# The calls that run.


class Raw(Protocol):
    """A call as a worker holds it. `headers`: all of its message's. `view`: its Call, once `view_of` has made it."""

    id: Any
    args: Any
    kwargs: Any
    headers: Any
    view: Call | None


Running = tuple[str, Sequence[Any]]  # name of the service, its calls (Raw) that run together

running: ContextVar[Running | None] = ContextVar("running", default=None)


def view_of(service: str, raw: Any) -> Call:
    """Return the Call of a call that a worker holds, for middleware: the same object each time."""
    view: Call | None = raw.view
    if view is None:
        view = raw.view = Call(service, str(raw.id), raw.args, raw.kwargs, own_headers(raw.headers))
    return view


def current_calls() -> list[Call]:
    """Return the calls that the service runs at the moment, in the order of its argument; none outside of services."""
    found = running.get()
    return [] if found is None else [view_of(found[0], raw) for raw in found[1]]


def current_call() -> Call | None:
    """Return the call that the service runs at the moment, the first of a batch; None outside of services."""
    found = running.get()
    return None if found is None else view_of(found[0], found[1][0])


# Headers.


def own_headers(headers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the headers of a message that its sender has set."""
    return {name: value for name, value in headers.items() if not _is_reserved(name)}


def _is_reserved(name: str) -> bool:
    return name in RESERVED or name.startswith(RESERVED_BEGINNINGS)


def checked_headers(headers: Any) -> dict[str, Any]:
    """Return a copy of the headers of a call. Raises ConfigurationError for headers that cannot be sent."""
    if not isinstance(headers, Mapping):
        raise ConfigurationError(f"headers={headers!r:.80}: give a mapping of names to texts, numbers or booleans")
    problems, size = list[str](), 0
    for name, value in headers.items():
        length = _length(name)
        if not 0 < length <= LONGEST_NAME:
            problems.append(f"header {name!a:.80}: its name is not text of 1 to {LONGEST_NAME} bytes")
        elif _is_reserved(name):
            problems.append(f"header {name!r}: this name has a meaning in Celery's messages; use another")
        elif not isinstance(value, str | bool | int | float):
            problems.append(f"header {name!r} is {type(value).__name__}; use a text, a number or a boolean")
        elif isinstance(value, int) and not -LARGEST <= value < LARGEST:
            problems.append(f"header {name!r}: whole numbers have 64 bits")
        elif isinstance(value, str) and _length(value) < 0:
            problems.append(f"header {name!r} is {value!a:.80}, which is not UTF-8")
        size += max(length, 0) + (_length(value) if isinstance(value, str) else 8)
    if size > MOST_HEADERS:
        problems.append(f"headers: {size} bytes are more than {MOST_HEADERS}; send them as an argument")
    if problems:
        raise ConfigurationError(problems)
    return dict(headers)


def _length(text: Any) -> int:
    """Return the bytes of a text in UTF-8; -1 for what cannot be encoded."""
    try:
        return len(text.encode())
    except (AttributeError, UnicodeEncodeError):
        return -1
