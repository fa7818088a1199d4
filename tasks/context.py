"""The run that a process belongs to, for code that names none: `Solver()`, `EventDispatcher()`, `@remote`."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

from tasks.topology import Topology
from warren.environment import secret
from warren.errors import ConfigurationError

VARIABLES = ("WARREN_BROKER_URL", "WARREN_REDIS_URL", "WARREN_RUN")


class Run(NamedTuple):
    """A Celery app and the names of its run."""

    app: Any
    topology: Topology


_lock = threading.Lock()
_run: Run | None = None


def install(app: Any, topology: Topology) -> Run:
    """Make this the run of the process."""
    global _run
    _run = Run(app, topology)
    return _run


def current() -> Run:
    """Return the run of this process: the installed one, else that of the environment (which the launcher sets).

    Raises ConfigurationError when there is neither.
    """
    with _lock:
        if _run is not None:
            return _run
        given = {name: secret(name) for name in VARIABLES}
        missing = [name for name, value in given.items() if not value]
        if missing:
            raise ConfigurationError(
                f"this process belongs to no run ({', '.join(missing)} not set in the environment); for the newest "
                'below runs/: eval "$(python -m workers.servers env)", or make a Solver(app, topology) of your own'
            )
        from tasks.app import create_app

        broker_url, redis_url, run = map(str, given.values())
        topology = Topology(run)
        return install(create_app(topology, broker_url, redis_url), topology)
