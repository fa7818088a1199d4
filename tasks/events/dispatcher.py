"""Firing events to all subscribers: by over_amqp.py, or over_redis.py on a Redis broker."""

from __future__ import annotations

from typing import Any

from celery.utils.log import get_logger

from tasks import brokers, context
from tasks.brokers import GONE
from tasks.codec.encoder import pack
from tasks.events import over_amqp, over_redis
from tasks.events.retained import Retained
from tasks.service import event_handler as event_handler
from tasks.topology import Topology
from warren.errors import BrokerError

logger = get_logger(__name__)


def of_player(name: str, player: str) -> str:
    """Return the name of a player's own event `name`: only the newest event of a name waits, so each has its own."""
    return f"{name}.{player}"


class EventDispatcher:
    """Fires events of one run, by default that of the environment: `EventDispatcher().fire("weights", payload)`.

    Safe to use from any thread.
    """

    def __init__(self, app: Any = None, topology: Topology | None = None) -> None:
        if app is None or topology is None:
            app, topology = context.current()
        self.app, self.topology = app, topology
        self._sender = (over_amqp if brokers.of(app).direct_reply else over_redis).Sender(app, topology)
        self._retained = Retained(app, topology)

    def fire(self, name: str, payload: Any = None, another_follows: bool = False) -> None:
        """Send `payload` to every present subscriber of `name`; returns when the broker has it.

        `another_follows`: another event follows soon; a new first subscriber may wait for that one.

        Raises CodecError for what cannot be encoded, BrokerError when the broker stays away for two seconds, or takes
        no messages for 15 s, and as long for events that other threads fire at the time.
        """
        body = pack(payload)
        kept = self._retained.keep(name, body, ask=not another_follows)
        try:
            self._sender.send(name, body)
        except GONE as error:
            raise BrokerError(f"event {name!r} was not sent, since the broker is away: {error}") from error
        if not kept:  # there was no subscriber, but one may have come meanwhile, and later ones need the event
            self._retained.keep(name, body)

    def close(self) -> None:
        """Drop the connection; the next event makes a new one."""
        self._sender.close()
