"""Handing back the calls that a stopping worker holds and will not run; none is lost, or counted as delivered."""

from __future__ import annotations

import time
from collections.abc import Iterable

from celery.utils.log import get_logger

from tasks.amqp import frames
from tasks.brokers import Connection
from tasks.topology import Topology
from tasks.worker.replies import Outbox
from tasks.worker.service_queue import Call, ServiceQueue

logger = get_logger(__name__)

CONFIRMED_WITHIN = 5.0  # s that the broker may take to confirm the calls that are handed back as new messages


def hand_back(link: Connection, outbox: Outbox, topology: Topology, queues: Iterable[ServiceQueue]) -> None:
    """Give back every call that `queues` hold.

    Calls without a direct caller are rejected with requeue: to be delivered again costs them nothing, since they have
    not run. A direct call that is delivered again may be one that killed its worker, and is lost where it may not run
    twice; so it goes back as a new message, and is acknowledged when the broker has confirmed that.
    """
    again: list[tuple[ServiceQueue, Call]] = []
    for queue in queues:
        held = [*queue.waiting, *sorted(queue.later, key=lambda call: call.delivery.tag)]
        queue.waiting.clear()
        queue.later.clear()
        for call in held:
            if call.direct:
                again.append((queue, call))
            else:
                outbox.reject(call.delivery.tag, requeue=True)
    outbox.flush()
    if again:
        _send_anew(link, outbox, topology, again)


def _send_anew(link: Connection, outbox: Outbox, topology: Topology, calls: list[tuple[ServiceQueue, Call]]) -> None:
    unconfirmed = dict(enumerate((call for _, call in calls), start=1))
    refused: set[int] = set()
    returned: set[str] = set()

    def settled(number: int, multiple: bool, taken: bool) -> None:
        for one in [one for one in unconfirmed if one == number or (multiple and one < number)]:
            call = unconfirmed.pop(one)
            if taken and call.properties.correlation_id not in returned:
                outbox.ack(call.delivery.tag)
            else:
                refused.add(call.delivery.tag)

    link.on_returned(returned.add)
    channel = link.confirm(settled)
    for queue, call in calls:
        method = frames.publish_method(channel, topology.service.name, queue.spec.name, mandatory=True)
        properties, body = call.delivery.properties, call.delivery.body
        link.send(b"".join([method, *frames.content(channel, properties, body, link.frame_max)]))
    limit = time.monotonic() + CONFIRMED_WITHIN
    while unconfirmed and time.monotonic() < limit:
        link.drain()
    for tag in (*(call.delivery.tag for call in unconfirmed.values()), *refused):
        outbox.reject(tag, requeue=True)
    if unconfirmed or refused:
        logger.warning("%d calls go back to their queues as if this worker had died", len(unconfirmed) + len(refused))
    outbox.flush()
