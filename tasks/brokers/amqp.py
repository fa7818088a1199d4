"""RabbitMQ."""

from __future__ import annotations

from typing import Any

from tasks.amqp.connection import Link
from tasks.brokers.base import Broker, Connection


class AmqpBroker(Broker):
    """A broker that speaks AMQP 0-9-1 with RabbitMQ's extensions."""

    direct_reply = refuses = dead_letters = True

    def __init__(self, app: Any) -> None:
        self._app = app

    def connect(self) -> Connection:
        """See Broker."""
        return Link(self._app)
