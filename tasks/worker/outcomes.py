"""What becomes of a call that has run: its caller gets a direct reply, or Celery records it, or it is a dead letter."""

from __future__ import annotations

from typing import Any

from celery.utils.log import get_logger

from tasks.amqp.frames import Properties
from tasks.amqp.messages import DIRECT_REPLY, NO_LINKS
from tasks.app.dead_letters import Letter, send_dead_letter
from tasks.worker.replies import Outbox
from tasks.worker.running import Failed, replay
from tasks.worker.service_queue import Call, ServiceQueue
from tasks.worker.timers import Timers
from warren.errors import DeliveriesExceeded

logger = get_logger(__name__)


class Outcomes:
    """Sends, on one connection, the outcome of each call to whoever waits for it, and ends its message."""

    def __init__(self, app: Any, hostname: str, outbox: Outbox, timers: Timers) -> None:
        self._app, self._hostname, self._outbox, self._timers = app, hostname, outbox, timers

    def answer(self, queue: ServiceQueue, call: Call, outcome: Any) -> None:
        """Send the outcome to whoever waits for it: by direct reply, or in Celery's own ways."""
        properties, delivery = call.properties, call.delivery
        if properties.reply_to.startswith(DIRECT_REPLY):
            self._outbox.reply(properties, outcome)
            self._outbox.ack(delivery.tag)  # the claim is the caller's, who may have to send the call again
        elif by_celery(properties, call.embed):
            self._record(queue, call, outcome)
        elif not isinstance(outcome, Failed):
            self._outbox.ack(delivery.tag, delivery.body)
        elif isinstance(outcome.error, DeliveriesExceeded):
            logger.error("%s", outcome.error)
            if not self.give_up(queue, call, str(outcome.error)):
                self._outbox.reject(delivery.tag, requeue=False)
        else:
            logger.warning("a call of %s failed, and nobody waits for its result: a dead letter", queue.spec.name)
            self._outbox.reject(delivery.tag, requeue=False)

    def give_up(self, queue: ServiceQueue, call: Call, reason: str) -> bool:
        """Make a dead letter of a call, with the reason; False when that could not be sent."""
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

    def _record(self, queue: ServiceQueue, call: Call, outcome: Any) -> None:
        """Result backend, chord, callbacks and chain; again a little later where Redis or the broker is away."""
        properties, delivery = call.properties, call.delivery
        request = {**properties.headers, **(call.embed or {}), "hostname": self._hostname}
        request |= {"correlation_id": properties.correlation_id, "reply_to": properties.reply_to}
        request["delivery_info"] = {"redelivered": delivery.redelivered, "priority": None}
        try:
            replay(queue.task, queue.trace, outcome, call.id, (call.args, call.kwargs), request)
        except Exception as error:
            logger.warning("the outcome of %s cannot be recorded for now, trying again: %s", queue.spec.name, error)
            self._timers.again(lambda: self._record(queue, call, outcome))
        else:
            self._outbox.ack(delivery.tag, delivery.body)


def by_celery(properties: Properties, embed: Any) -> bool:
    """Whether somebody waits for the outcome in one of Celery's own ways: result backend, chord, callbacks, chain."""
    return bool(properties.reply_to or (embed and embed != NO_LINKS) or properties.headers.get("group"))
