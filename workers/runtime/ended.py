"""The end of a run, as its processes learn of it: by a status event, or from Redis if they missed the event."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from celery.utils.log import get_logger

from tasks.events import STATUS, Subscription
from workers.runtime.run_status import CLOSED, Ending
from workers.runtime.session import Session

logger = get_logger(__name__)


def follow_run(
    session: Session,
    subscriber: str,
    stop: Callable[[], None],
    over_at: Collection[str] = (CLOSED,),
    *,
    handlers: Mapping[str, Callable[[dict[str, Any]], None]] | None = None,
    catch_up: Callable[[], None] = lambda: None,
) -> Subscription:
    """Subscribe to the run's status; call `stop` once it is one of `over_at`, or if it is that already.

    `handlers`: for other events. `catch_up` is called each time that the subscription is bound. Roles that serve other
    roles stay until CLOSED, when the launcher has stopped all others. Raises redis.RedisError.
    """
    ending = Ending(session.redis, session.topology.key_prefix)

    def on_status(figures: dict[str, Any]) -> None:
        if figures["state"] in over_at:
            logger.info("the run is %s", figures["state"])
            stop()

    def on_connected() -> None:
        catch_up()
        # Only the launcher decides that a league is over.
        state = ending.verdict(session.config) if session.config.league is None else ending.state()
        if state in over_at:
            logger.info("the run is %s already", state)
            stop()

    told = {**(handlers or {}), STATUS: on_status}
    return Subscription(session.app, session.topology, told, subscriber, on_connected=on_connected).start()


def open_run(session: Session) -> None:
    """Declare the queues of a run that begins, or begins anew, and forget the end of an earlier run of its name."""
    session.declare()
    Ending(session.redis, session.topology.key_prefix).clear()
