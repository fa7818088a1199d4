"""`@remote`: stubs that call the service of their own name in this process's run."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, overload

from tasks.client.solver import Solver
from tasks.client.stubs import calling
from warren.errors import ConfigurationError

P = ParamSpec("P")
R = TypeVar("R")

_default: list[Solver] = []


def default() -> Solver:
    """Return the Solver of this process's run, which `@remote` stubs use."""
    if not _default:
        _default.append(Solver())
    return _default[0]


@overload
def remote(stub: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def remote(*, service: str | None = None) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def remote(stub: Callable[..., Any] | None = None, /, *, service: str | None = None) -> Any:
    """Turn a function into a stub that calls the service of its name, as in Oneagent; its body never runs.

    @remote
    def policy_eval(): pass

    action = policy_eval(state)

    The stub keeps the function's signature and type; that of an `async def` is awaited. `deadline=` limits the call,
    unless the function has an argument of that name, which then goes to the service.
    """

    def make(function: Callable[..., Any]) -> Callable[..., Any]:
        name = service or function.__name__
        if name == "<lambda>":
            raise ConfigurationError("@remote: a lambda has no name to call; give service='ROLE.METHOD'")
        own = "deadline" in inspect.signature(function).parameters
        return calling(default, name, function, all_are_the_services=own)

    return make if stub is None else make(stub)
