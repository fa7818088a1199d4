"""Stubs: functions, and objects with methods, that call services and keep the types of the code that they stand for."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Protocol

from tasks.client.arguments import Args
from tasks.service import is_worker, role_of, services_of
from warren.errors import ConfigurationError


class Caller(Protocol):
    """The part of a solver that stubs use."""

    def call(self, service: str, /, *args: Any, **kwargs: Any) -> Any:
        """Call a service and wait for its result."""

    async def acall(self, service: str, /, *args: Any, **kwargs: Any) -> Any:
        """Call a service and await its result."""


def calling(
    solver: Callable[[], Caller], name: str, function: Callable[..., Any], all_are_the_services: bool = True
) -> Callable[..., Any]:
    """Return a function like `function` that calls service `name`; it is an `async def` if `function` is one.

    `all_are_the_services`: every argument is the service's; False: `deadline` is the call's.
    """

    def given(args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        return ((Args(*args, **kwargs),), {}) if all_are_the_services else (args, kwargs)

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def acall(*args: Any, **kwargs: Any) -> Any:
            args, kwargs = given(args, kwargs)
            return await solver().acall(name, *args, **kwargs)

        return acall

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = given(args, kwargs)
        return solver().call(name, *args, **kwargs)

    return call


def stub_of(solver: Caller, kind: Any, role: str = "") -> Any:
    """Return an object whose methods call the services that `kind` names; see Forms.stub."""
    if not isinstance(kind, type):
        raise ConfigurationError(f"stub({kind!r:.80}): give a class, as of a worker, or a Protocol with its calls")
    if is_worker(kind):
        role = role or role_of(kind)
        names = [spec.name.partition(".")[2] for spec in services_of(kind)]
    else:
        role = role or getattr(kind, "role", "") or kind.__name__.lower()
        members = ((name, inspect.getattr_static(kind, name)) for name in dir(kind) if not name.startswith("_"))
        names = [name for name, member in members if inspect.isfunction(member)]
    if not names:
        raise ConfigurationError(f"stub({kind.__name__}): it has no method to call; write one for each service")
    methods = {name: calling(lambda: solver, f"{role}.{name}", getattr(kind, name)) for name in names}
    return type(f"{kind.__name__}Stub", (_Stub,), {"__slots__": (), "__doc__": kind.__doc__})(role, methods)


class _Stub:
    """Holds the calls of one role."""

    __slots__ = ("_methods", "_role")

    def __init__(self, role: str, methods: dict[str, Callable[..., Any]]) -> None:
        self._role, self._methods = role, methods

    def __getattr__(self, name: str) -> Any:
        try:
            return self._methods[name]
        except KeyError:
            known = ", ".join(self._methods)
            raise AttributeError(f"this stub of role {self._role!r} has no service {name!r}, but {known}") from None

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._methods]
