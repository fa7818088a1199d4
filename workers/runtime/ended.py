"""Hearing the end of a run, for roles that serve the others until then and may have been started by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celery.utils.log import get_logger

from tasks.events import STATUS, Subscription
from workers.runtime.run_status import CLOSED, Ending
from workers.runtime.session import Session

logger = get_logger(__name__)


def closing(session: Session, subscriber: str, stop: Callable[[], None]) -> Subscription:
    """Calls `stop` once the run's launcher has stopped everybody else and removes the run, or had done so before.

    Raises redis.RedisError.
    """
    ending = Ending(session.redis, session.topology.key_prefix)

    def on_status(figures: dict[str, Any]) -> None:
        if figures["state"] == CLOSED:
            logger.info("the run is closed")
            stop()

    def on_connected() -> None:
        if ending.state() == CLOSED:
            logger.info("the run is closed already")
            stop()

    handlers = {STATUS: on_status}
    return Subscription(session.app, session.topology, handlers, subscriber, on_connected=on_connected).start()


def open_run(session: Session) -> None:
    """For the launcher: the run begins, or a run of its name begins anew."""
    session.declare()
    Ending(session.redis, session.topology.key_prefix).clear()
