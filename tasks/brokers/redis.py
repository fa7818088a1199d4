"""A Redis as broker, through kombu: no direct replies, no bounds, no dead letters."""

from __future__ import annotations

from typing import Any

from kombu.exceptions import OperationalError

from tasks.brokers.base import Broker, Connection

LOWEST = 9  # priority


class RedisBroker(Broker):
    """A Redis broker, which only Celery's own client, consumer and result backend speak to."""

    direct_reply = refuses = dead_letters = False

    def __init__(self, app: Any) -> None:
        self._app = app

    def priority(self, level: int, levels: int) -> int:
        """See Broker. kombu takes 0 for the highest here, and has 0, 3, 6 and 9 only."""
        return LOWEST - round(level * LOWEST / (levels - 1))

    def connect(self) -> Connection:
        """Raise OperationalError: only Celery's own connections speak to a Redis broker."""
        raise OperationalError("a Redis broker takes no connections for direct calls; use an amqp:// broker for those")
