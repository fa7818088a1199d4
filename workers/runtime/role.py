"""The life of a role's process, from the check of its configuration to its exit status, alike for all roles.

def run(config: Config) -> int:
    session = enter(config, roles.EVALUATOR, torch_threads=1)
    return live(session, roles.EVALUATOR, lambda config: EvaluatorRole(config, session))
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import torch

from agents.native.library import choose
from league.models.pool import CACHE_BYTES
from tasks.middleware import install
from tasks.worker.celery_worker import log_to_stderr
from tasks.worker.pool import stop_worker
from warren.errors import ConfigurationError
from warren.log_fields import tell
from workers.config import middleware
from workers.config.roles import Role
from workers.config.schema import Config
from workers.config.validation import verify
from workers.runtime.connect import connect
from workers.runtime.ended import follow_run
from workers.runtime.garbage import spare_inherited
from workers.runtime.metrics_endpoint import Sample, of_stages, served
from workers.runtime.run_status import OVER
from workers.runtime.session import Session
from workers.runtime.standing import standing


class RoleProcess:
    """The work of one process of a role, as `live` needs it.

    `over_at`: the states of the run after which this role has nothing to do. `failure`: why the work ended; None if it
    was told to stop.
    """

    over_at: Collection[str] = OVER
    failure: BaseException | None = None

    def __init__(self, stopping: threading.Event | None = None) -> None:
        """Take `stopping`, the event that is set when this process is told to stop; None makes one."""
        self.stopping = stopping or threading.Event()

    def handlers(self) -> Mapping[str, Callable[[dict[str, Any]], None]]:
        """Return a handler for each event to subscribe to, besides the status of the run."""
        return {}

    def samples(self) -> Iterator[Sample]:
        """Yield this role's own metrics; may be called from any thread."""
        timing = getattr(self, "timing", None)
        if timing is not None:
            yield from of_stages(timing.shares())

    def catch_up(self) -> None:
        """Read the news that events brought while not subscribed; called after each connection to the broker."""

    def work(self, name: str) -> int:
        """Work as process `name` until told to stop; return the exit status."""
        raise NotImplementedError

    def stop(self) -> None:
        """End this process; may be called from any thread."""
        self.stopping.set()
        stop_worker()

    def leave(self) -> None:
        """End the threads beside `work`, which has returned or failed, and give back what other processes wait for."""
        self.stopping.set()


def enter(config: Config, role: Role, *, torch_threads: int | None = None, cache_bytes: int = CACHE_BYTES) -> Session:
    """Verify the configuration, install its middleware, begin the log, wait for the servers; return the session.

    `torch_threads`: None leaves torch's own choice. Raises ConfigurationError, BrokerError for servers that refuse.
    """
    verify(config, role=role.name)
    if config.middleware:
        install(*middleware.made(config.middleware))
    log_to_stderr(config.log_level, config.log_format)
    tell(run=config.run, role=role.name)
    choose(config.perceptrons)
    if torch_threads is not None:
        torch.set_num_threads(torch_threads)
    spare_inherited()
    return Session(config, *connect(config), cache_bytes=cache_bytes)


def live(
    session: Session,
    role: Role,
    make: Callable[[Config], RoleProcess],
    stopping: threading.Event | None = None,
) -> int:
    """Do the work of one process of a numbered role, until the run is over or a stop; return the exit status.

    `make` is given the configuration with the number of this process, whose lease is held from then on. `stopping`
    also ends the waits for a number and for the run's exchanges. Status 1 when the work failed; raises a failure that
    is a ConfigurationError.
    """
    assert role.id is not None
    if not session.declare(stopping):
        return 0
    with standing(session, role, stopping) as config:
        process, name = make(config), f"{role.name}-{getattr(config, role.id)}"
        tell(process=name)
        subscription = follow_run(
            session, name, process.stop, process.over_at, handlers=process.handlers(), catch_up=process.catch_up
        )
        try:
            with served(config, role.name, name, process.samples, session.app):
                status = process.work(name)
        finally:
            process.leave()
            subscription.stop()
    if isinstance(process.failure, ConfigurationError):
        raise process.failure
    return status if process.failure is None else 1
