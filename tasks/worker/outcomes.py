"""Apply the outcome of a call: tell its caller and end its message."""

from __future__ import annotations

from typing import Any

from celery.utils.log import get_logger

from tasks.amqp.frames import Properties
from tasks.amqp.messages import DIRECT_REPLY, NO_LINKS
from tasks.app.dead_letters import Letter, send_dead_letter
from tasks.app.outcome import EXPIRED, DeadLetter, Dropped, Failed, Outcome, Requeue, failed
from tasks.codec import claim_check
from tasks.topology import Topology
from tasks.worker.bookkeeping import AWAY, record
from tasks.worker.replies import Outbox
from tasks.worker.service_queue import Call, ServiceQueue
from tasks.worker.timers import Timers
from warren.errors import DeliveriesExceeded

logger = get_logger(__name__)


class Outcomes:
    """Applies, on one connection, the outcome of each call: tells the one that waits for it, and ends its message.

    | outcome    | direct call       | Celery's call               | one-way call    |
    |------------|-------------------|-----------------------------|-----------------|
    | a result   | reply             | SUCCESS                     | acknowledged    |
    | Failed     | failure           | FAILURE; one-way: dead too  | dead letter     |
    | Dropped    | failure (*)       | REVOKED, RETRY or nothing   | acknowledged    |
    | Requeue    | sent anew         | back to its queue           | back            |
    | DeadLetter | failure           | FAILURE; one-way: dead too  | dead letter     |

    (*) nothing when the call has expired, since its caller waits no longer. The queues of services with a response have
    no dead letters.
    """

    def __init__(self, app: Any, topology: Topology, hostname: str, outbox: Outbox, timers: Timers) -> None:
        self._app, self._topology, self._hostname = app, topology, hostname
        self._outbox, self._timers = outbox, timers

    def settle(self, queue: ServiceQueue, call: Call, outcome: Any) -> None:
        """Apply the outcome of a call."""
        properties = call.properties
        if properties.reply_to.startswith(DIRECT_REPLY):
            if isinstance(outcome, Outcome):
                self._tell_caller(queue, call, outcome)
            else:
                self._outbox.reply(properties, outcome)
            self._outbox.ack(call.delivery.tag)  # the claim is the caller's, which may have to send the call again
        elif by_celery(properties, call.embed):
            self._settle_celerys(queue, call, outcome)
        else:
            self._end(queue, call, outcome)

    def _tell_caller(self, queue: ServiceQueue, call: Call, outcome: Outcome) -> None:
        if isinstance(outcome, Requeue):
            # Published as a new message, behind those that wait.
            sent = call.delivery
            self._outbox.publish(self._topology.service.name, queue.spec.name, sent.properties, sent.body)
        elif not (isinstance(outcome, Dropped) and outcome.error.args == (EXPIRED,)):
            if isinstance(outcome.error, DeliveriesExceeded):
                logger.error("%s", outcome.message)
            self._outbox.reply(call.properties, outcome)

    def _settle_celerys(self, queue: ServiceQueue, call: Call, outcome: Any) -> None:
        """Let Celery record the outcome, trying again later if Redis or the broker is away; then end the call."""
        properties, delivery = call.properties, call.delivery
        request = {**properties.headers, **(call.embed or {}), "hostname": self._hostname}
        request |= {"correlation_id": properties.correlation_id, "reply_to": properties.reply_to}
        request["delivery_info"] = {"redelivered": delivery.redelivered, "priority": None}
        try:
            info = record(queue.task, queue.trace, outcome, (call.args, call.kwargs), request, properties.content_type)
        except AWAY as error:
            logger.warning("the outcome of %s cannot be recorded for now, trying again: %s", queue.spec.name, error)
            self._timers.again(lambda: self._settle_celerys(queue, call, outcome))
            return
        if info is not None and not isinstance(outcome, Outcome):
            outcome = failed(getattr(info.exception, "exc", info.exception))  # a result that Celery cannot store
        self._end(queue, call, outcome)

    def _end(self, queue: ServiceQueue, call: Call, outcome: Any) -> None:
        """End the message of a call that no caller of ours waits for."""
        delivery = call.delivery
        if isinstance(outcome, Requeue):
            self._outbox.reject(delivery.tag, requeue=True)
        elif not isinstance(outcome, (Failed, DeadLetter)):
            self._outbox.ack(delivery.tag, delivery.body)
        elif queue.spec.response:  # its queue has no dead letters
            if not call.properties.reply_to:
                logger.warning("a call of %s failed and named no reply address: it is lost", queue.spec.name)
            self._outbox.ack(delivery.tag, delivery.body)
        elif isinstance(outcome, DeadLetter) or isinstance(outcome.error, DeliveriesExceeded) or tried_before(call):
            reason = outcome.message
            if tried := tried_before(call):
                reason = f"it failed {tried + 1} times, last with {outcome.kind}: {reason}"
            logger.error("%s", reason)
            if not self.give_up(queue, call, reason):
                self._outbox.reject(delivery.tag, requeue=False)
        else:
            logger.warning("a call of %s failed, and its result is not awaited: a dead letter", queue.spec.name)
            claim_check.keep(delivery.body)
            self._outbox.reject(delivery.tag, requeue=False)

    def give_up(self, queue: ServiceQueue, call: Call, reason: str) -> bool:
        """Make a dead letter of a call, with the reason; return False when that could not be sent."""
        properties = call.properties
        letter = Letter(
            call.delivery.body,
            properties.headers,
            properties.content_type,
            "binary",
            properties.correlation_id,
            queue.spec.name,
        )
        sent = send_dead_letter(self._app, letter, reason)
        if sent:
            self._outbox.ack(call.delivery.tag)
        return sent


def tried_before(call: Call) -> int:
    """Return how often a call has been tried again."""
    return 0 if call.view is None else call.view.tried


def by_celery(properties: Properties, embed: Any) -> bool:
    """Return whether the outcome is awaited in Celery's own ways: result backend, chord, callbacks, chain."""
    return bool(properties.reply_to or (embed and embed != NO_LINKS) or properties.headers.get("group"))
