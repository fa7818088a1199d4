"""Dead letters with their reason as text: copies in the queue that the broker moves rejected messages to."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from celery.utils.log import get_logger

from tasks import brokers
from tasks.codec import claim_check
from tasks.topology import ROLES, Topology

logger = get_logger(__name__)

REASON = "x-warren-reason"  # header of a dead letter, as text
DIED = "x-warren-died"  # header of a dead letter: when the message died, Unix time in whole s
UNKNOWN_TYPE = "application/data"  # type of a body that came without one
CONFIRMED_WITHIN = 10.0  # s that the broker may take to confirm a dead letter, before it goes without its reason


@dataclass(frozen=True)
class Letter:
    """A message that no worker could run. `key`: its routing key, which begins with the role that it was meant for."""

    body: bytes
    headers: Mapping[str, Any]
    content_type: str
    content_encoding: str
    correlation_id: str
    key: str


def declare_queues(connection: Any, topology: Topology) -> None:
    """Declare the queues of tasks' dead letters, which also keeps existing ones from expiring."""
    for role in ROLES:
        topology.dead_queue(role)(connection.default_channel).declare()


def letter_of(app: Any, message: Any) -> Letter:
    """Make a letter of a message that kombu delivered."""
    key = message.delivery_info.get("routing_key") or ""
    return Letter(
        body=message.body.encode() if isinstance(message.body, str) else message.body,  # an empty body is a str
        headers=message.headers or {},
        content_type=message.content_type,
        content_encoding=message.content_encoding,
        correlation_id=message.properties.get("correlation_id") or "",
        key=app.warren_topology.key_of(key),
    )


def send_dead_letter(app: Any, letter: Letter, reason: str) -> bool:
    """Publish a copy of `letter` to the dead letters with `reason` in its header REASON; return whether it arrived.

    False while the broker is away, and on a Redis broker, which has no dead letters: reject the message then, and
    RabbitMQ moves it there without the reason.
    """
    topology: Topology = app.warren_topology
    if not brokers.of(app).dead_letters:
        return False
    try:
        with app.producer_or_acquire() as producer:
            producer.publish(
                letter.body,
                exchange=topology.dead.name,
                routing_key=letter.key,
                declare=[topology.dead_queue(letter.key.partition(".")[0])],
                headers={**letter.headers, REASON: reason, DIED: int(time.time())},
                content_type=letter.content_type or UNKNOWN_TYPE,
                content_encoding=letter.content_encoding or "binary",
                correlation_id=letter.correlation_id,
                delivery_mode=2,
                timeout=CONFIRMED_WITHIN,
                confirm_timeout=CONFIRMED_WITHIN,
            )
        claim_check.keep(letter.body)
        return True
    except Exception as error:
        logger.warning("a dead letter goes without its reason (%s): %s", reason, error)
        return False
