"""One interface to every kind of broker: `of(app)` tells what the broker of an app can do, and connects to it.

base.py has what clients, workers and events may use; amqp.py is RabbitMQ, redis.py a Redis (tasks/testing has a broker
within a process). Other packages use what this file exports.
"""

from __future__ import annotations

from typing import Any

import tasks.brokers.tls  # noqa: F401  importing it changes how amqps:// is opened
from tasks.amqp.gone import GONE, LinkLost
from tasks.brokers.amqp import AmqpBroker
from tasks.brokers.base import Broker, Connection
from tasks.brokers.redis import RedisBroker

__all__ = ["GONE", "AmqpBroker", "Broker", "Connection", "LinkLost", "RedisBroker", "of"]


def of(app: Any) -> Broker:
    """Return an app's broker: the one installed as `app.warren_broker`, else one of the kind that its URL names."""
    broker: Broker | None = getattr(app, "warren_broker", None)
    if broker is None:
        kind = AmqpBroker if app.connection_for_write().transport.driver_type == "amqp" else RedisBroker
        broker = app.warren_broker = kind(app)
    return broker
