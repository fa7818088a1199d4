"""Whether anyone serves what is called: a call of a service without a worker fails when patience ends."""

from __future__ import annotations

import redis

from tasks.admin.registry import Directory
from tasks.client.future import Handle
from warren.errors import CallError, NobodyServing, NoSuchService, WorkerLost, unknown_name


class ServiceWatch:
    """Remembers which services have been served, and since when calls wait for a worker. Not locked."""

    def __init__(self, directory: Directory, patience: float) -> None:
        self._directory, self._patience = directory, patience
        self.served: set[str] = set()

    def seen(self, call: Handle, consumers: int, now: float) -> CallError | None:
        """`call` is out and `consumers` serve it; its error, if nobody has for too long."""
        if consumers:
            self.served.add(call.spec.name)
            call.unserved_since = None
            return None
        call.unserved_since = call.unserved_since or now
        waited = now - call.unserved_since
        return self._error(call.spec.name, waited) if waited >= self._patience else None

    def _error(self, name: str, waited: float) -> CallError:
        if name in self.served:
            return WorkerLost(name, f"the last worker that served {name} is gone, and none came for {waited:.1f} s")
        return unserved(self._directory, name, waited)


def unserved(directory: Directory, name: str, waited: float) -> CallError:
    """The error for a service that no worker serves: does the run have one of that name at all?"""
    try:
        known = directory.known()
    except redis.RedisError:
        known = {}
    if name in known or not known:
        return NobodyServing(
            name, f"nobody has served {name} for {waited:.1f} s; start a worker (python -m workers.services lists them)"
        )
    return NoSuchService(name, unknown_name("service", name, known, "(python -m workers.services lists them)"))
