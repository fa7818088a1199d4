"""Connections of users with the rights of one role: what they may not declare is looked for, and declared by others."""

from __future__ import annotations

from typing import Any

from kombu.transport.pyamqp import Channel as KombuChannel
from kombu.transport.pyamqp import Connection as KombuConnection
from kombu.transport.pyamqp import Transport as KombuTransport

from tasks import compat, rights

SCHEMES = ("amqp", "pyamqp")


class Channel(KombuChannel):  # type: ignore[misc]
    """A channel that declares what its user may. Of the rest it raises NotFound where that does not exist."""

    def exchange_declare(self, exchange: str, type: str, passive: bool = False, **more: Any) -> Any:
        """Declare an exchange as py-amqp, or look for one that the user may not declare."""
        return super().exchange_declare(exchange, type, passive or not self.connection.may_declare(exchange), **more)

    def queue_declare(self, queue: str = "", passive: bool = False, **more: Any) -> Any:
        """Declare a queue as py-amqp, or look for one that the user may not declare."""
        return super().queue_declare(queue, passive or not self.connection.may_declare(queue), **more)

    def queue_bind(self, queue: str, *given: Any, **more: Any) -> Any:
        """Bind a queue as py-amqp; one that the user may not declare has been bound by who did."""
        return super().queue_bind(queue, *given, **more) if self.connection.may_declare(queue) else None


class Connection(KombuConnection):  # type: ignore[misc]
    """A connection whose channels know what its user may declare."""

    Channel = Channel

    def __init__(self, *given: Any, userid: str | None = "guest", **named: Any) -> None:
        super().__init__(*given, userid=userid, **named)
        self.may_declare = rights.may_declare(userid)


class Transport(KombuTransport):  # type: ignore[misc]
    """kombu's transport, with such connections."""

    Connection = Connection


for scheme in SCHEMES:
    compat.use_transport(scheme, f"{__name__}:{Transport.__name__}")
