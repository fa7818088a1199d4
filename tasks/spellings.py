"""Spellings of msagent that Warren keeps for those who come from it: `register`, `retrieve`, `retrive`.

Warren's own are `service` and `call`. The functions here make these spellings from those, so the modules that hold
those import this one: `from tasks.service import register` and `solver.retrieve(...)` are where msagent's users look.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def register_by(service: Callable[..., Any]) -> Callable[..., Any]:
    """Return `register`, which marks methods by `service`."""

    def register(method: Any = None, /, **options: Any) -> Any:
        """Make a method a service, as `service` does, whose batches wait until they are full: gather="exactly".

        This is what `register(batch=N)` means in msagent.
        """
        mark = service(**{"gather": "exactly", **options})
        return mark if method is None else mark(method)

    return register


def retrieve_by(role_of: Callable[[object], str]) -> Callable[..., Any]:
    """Return the method `retrieve` of a class with the method `call`; `role_of` names the role of a worker."""

    def retrieve(self: Any, worker: object, method: str, /, *args: Any, **kwargs: Any) -> Any:
        """Call a service in msagent's form: the worker (an object, a class or a role), its method, the arguments.

        Raises ConfigurationError for an object that is not a worker.
        """
        role = worker if isinstance(worker, str) else role_of(worker)
        return self.call(f"{role}.{method}", *args, **kwargs)

    return retrieve
