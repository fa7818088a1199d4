"""Connections of users with the rights of one role: they only look for what others have to declare."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from amqp.exceptions import NotFound
from celery.utils.log import get_logger
from kombu.transport.pyamqp import Channel as KombuChannel
from kombu.transport.pyamqp import Connection as KombuConnection
from kombu.transport.pyamqp import Transport as KombuTransport

from tasks import compat, rights

logger = get_logger(__name__)

SCHEMES = ("amqp", "pyamqp")
LOOK_EVERY, SAY_EVERY = 0.2, 60.0  # s between looks for what others declare, and between lines about it


class Channel(KombuChannel):  # type: ignore[misc]
    """A channel that declares what its user may declare, and raises NotFound if anything else does not exist."""

    def exchange_declare(self, exchange: str, type: str, passive: bool = False, **more: Any) -> Any:
        """Declare an exchange as py-amqp, or look for one that the user may not declare."""
        return super().exchange_declare(exchange, type, passive or not self.connection.may_declare(exchange), **more)

    def queue_declare(self, queue: str = "", passive: bool = False, **more: Any) -> Any:
        """Declare a queue as py-amqp, or look for one that the user may not declare."""
        return super().queue_declare(queue, passive or not self.connection.may_declare(queue), **more)

    def queue_bind(self, queue: str, *given: Any, **more: Any) -> Any:
        """Bind a queue as py-amqp; one that the user may not declare has been bound by its declarer."""
        return super().queue_bind(queue, *given, **more) if self.connection.may_declare(queue) else None


class Connection(KombuConnection):  # type: ignore[misc]
    """A connection whose channels know what its user may declare."""

    Channel = Channel

    def __init__(self, *given: Any, userid: str | None = "guest", **named: Any) -> None:
        super().__init__(*given, userid=userid, **named)
        self.may_declare = rights.may_declare(userid)


class Transport(KombuTransport):  # type: ignore[misc]
    """kombu's transport, with the connections of this module."""

    Connection = Connection


def declare(connection: Any, entity: Any, stops_within: Callable[[float], bool]) -> bool:
    """Declare a queue or an exchange; wait for one that this user may not declare.

    `stops_within` waits for so many s; return False once it returns True, when there is nothing more to wait for.
    """
    say_at = 0.0
    while True:
        try:
            with connection.channel() as channel:
                entity(channel).declare()
                return True
        except NotFound:
            if time.monotonic() >= say_at:
                logger.warning("waiting for the run's learner, or its launcher, to declare %s", entity.name)
                say_at = time.monotonic() + SAY_EVERY
        if stops_within(LOOK_EVERY):
            return False


for scheme in SCHEMES:
    compat.use_transport(scheme, f"{__name__}:{Transport.__name__}")
