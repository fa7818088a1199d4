"""The process of an actor, in plain runs and leagues: it serves rollout tasks or, streaming, plays on in a thread."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from tasks.worker.pool import stop_worker
from workers.config.roles import Role
from workers.config.schema import Config, Sampling
from workers.runtime.facts import check_run_facts
from workers.runtime.role import RoleProcess, live
from workers.runtime.session import Session

logger = logging.getLogger(__name__)

ENDS_WITHIN = 5.0  # s to wait for the end of the sampling thread


class ActorProcess(RoleProcess):
    """A Celery worker that plays when a rollout task asks for it; when streaming, `stream` plays on in a thread.

    `asked`: player -> the fields that its algorithm asks samplers to collect.
    """

    def __init__(self, config: Config, session: Session) -> None:
        super().__init__()
        self.config, self.session = config, session
        self.asked: dict[str, list[str]] = {}
        self.first_step_at: float | None = None  # Unix time, s
        self.streaming = config.sampling is not Sampling.gathered
        self.thread = threading.Thread(target=self._stream, name="sampler", daemon=True)

    def stream(self) -> None:
        """Play and send until told to stop."""
        raise NotImplementedError

    def work(self, name: str) -> int:
        return self.session.work(name, self.session.topology.actor_queue(), self.on_ready, self.on_stopping)

    def on_ready(self) -> None:
        """Start the sampling thread, if this actor streams; called once the worker consumes."""
        if self.streaming:
            self.thread.start()

    def on_stopping(self) -> None:
        """Tell the sampling thread to stop, and end all waits."""
        self.stopping.set()

    def leave(self) -> None:
        super().leave()
        if self.thread.is_alive():
            self.thread.join(timeout=ENDS_WITHIN)

    def _stream(self) -> None:
        try:
            self.stream()
        except BaseException as error:
            logger.exception("sampling failed")
            self.failure = error
            stop_worker()


def live_as_actor(session: Session, role: Role, make: Callable[[Config], ActorProcess]) -> int:
    """Run an actor's process that agrees with its run on what is played and collected; return what `live` returns.

    Raises ConfigurationError if it does not agree, or if the user's environment fails again after it was made anew.
    """
    check_run_facts(session)

    def build(config: Config) -> ActorProcess:
        actor = make(config)
        check_run_facts(session, actor.asked)
        return actor

    return live(session, role, build)
