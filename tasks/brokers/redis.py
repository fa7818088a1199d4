"""A Redis as broker, through kombu: no direct replies, no bounds, no dead letters."""

from __future__ import annotations

from typing import Any

from kombu.exceptions import OperationalError

from tasks.brokers.base import Broker, Connection


class RedisBroker(Broker):
    """What Celery's client, consumer and result backend do is all there is."""

    direct_reply = refuses = dead_letters = False

    def __init__(self, app: Any) -> None:
        self._app = app

    def connect(self) -> Connection:
        """Raises OperationalError: only Celery's own connections speak to a Redis broker."""
        raise OperationalError("a Redis broker takes no connections for direct calls; use an amqp:// broker for those")
