"""Stubs: functions that call the service of their own name."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tasks.client.solver import Solver
from warren.errors import ConfigurationError

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
