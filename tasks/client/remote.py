"""`@remote`: functions that call the service of their own name, of this process's run."""

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
    """Make a function a stub of the service of the same name, as in Oneagent: its body is never run.

    @remote
    def policy_eval(): pass

    action = policy_eval(state)

    Its signature and its type stay; one that is `async def` is awaited. `deadline=...` is the call's, unless the stub
    names such an argument, which then is the service's.
    """

    def make(function: Callable[..., Any]) -> Callable[..., Any]:
        name = service or function.__name__
        if name == "<lambda>":
            raise ConfigurationError("@remote: a lambda has no name to call; give service='ROLE.METHOD'")
        own = "deadline" in inspect.signature(function).parameters
        return calling(default, name, function, all_are_the_services=own)

    return make if stub is None else make(stub)
