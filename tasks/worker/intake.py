"""Intake of deliveries: each becomes a call in its service's queue, or is refused."""

from __future__ import annotations

from typing import Any

from celery.utils.log import get_logger

from tasks.amqp import frames
from tasks.amqp.frames import Delivery, Properties
from tasks.amqp.messages import EXPIRES_BYTES
from tasks.app.formats import read_body
from tasks.app.outcome import failed
from tasks.app.protocol import is_moment, problem_with_body, problem_with_delay, problem_with_headers, seconds_until
from tasks.app.uncompressed import refusal
from tasks.worker.batch_scheduler import BatchScheduler
from tasks.worker.outcomes import Outcomes, by_celery
from tasks.worker.replies import Outbox
from tasks.worker.service_queue import Call, ServiceQueue
from tasks.worker.timers import HELD_FOR, MOST_HELD, Timers
from warren.errors import BrokerError, ClaimUsed, CodecError

logger = get_logger(__name__)


class Intake:
    """Reads the calls that arrive on one connection and gives them to `scheduler`."""

    def __init__(self, scheduler: BatchScheduler, outcomes: Outcomes, outbox: Outbox, timers: Timers) -> None:
        self._scheduler, self._outcomes, self._outbox, self._timers = scheduler, outcomes, outbox, timers

    def accept(self, queue: ServiceQueue, delivery: Delivery) -> None:
        """Put a call into its queue; refuse one that is unreadable."""
        try:
            properties = frames.read_properties(delivery.properties)
        except frames.Malformed as error:
            self.refuse(queue, delivery, None, str(error))
            return
        headers = properties.headers
        if type(headers.get("id")) is not str or not _readable(headers.get("expires")):
            reason = problem_with_headers({"task": queue.spec.name, **headers}) or "its headers cannot be read"
            self.refuse(queue, delivery, properties, reason)
            return
        call = Call(delivery, properties, (), {}, None)
        try:
            body = read_body(properties.content_type, delivery.body)
        except BrokerError as error:  # Redis, which holds it behind a claim check, may come back
            logger.warning("a call of %s cannot be read for now, trying again: %s", queue.spec.name, error)
            self._timers.hold(queue, call, lambda: self.accept(queue, delivery))
            return
        except Exception as error:
            if isinstance(error, ClaimUsed):
                # Its worker was killed before the broker read the acknowledgement, or it was published twice.
                logger.info("dropped a redelivered call of %s: %s", queue.spec.name, error)
                self._outbox.ack(delivery.tag)
            else:
                compression = headers.get("compression")
                self.refuse(queue, delivery, properties, refusal(compression) if compression else str(error))
            return
        problem = problem_with_body(body)
        if problem is None and not call.direct and by_celery(properties, body[2]):
            problem = problem_with_headers({"task": queue.spec.name, **headers})
        if problem is not None:
            self.refuse(queue, delivery, properties, problem)
            return
        call.args, call.kwargs, call.embed = body
        if headers.get("eta"):
            self._accept_later(queue, call)
        else:
            self._scheduler.add(queue, call)

    def _accept_later(self, queue: ServiceQueue, call: Call) -> None:
        """Hold a call of Celery's until it is due; refuse one that would take the place of others for long."""
        eta = call.properties.headers["eta"]
        seconds = seconds_until(eta) if is_moment(eta) else None
        if seconds is None:
            problem = f"its header 'eta' is {eta!r:.60}, not a moment"
        else:
            problem = problem_with_delay(seconds, HELD_FOR) or ""
        if not problem and len(queue.later) >= MOST_HELD:
            problem = f"{MOST_HELD} calls of its service wait for their eta here already; send it when it is due"
        if problem or seconds is None:
            self.refuse(queue, call.delivery, call.properties, problem)
        elif seconds > 0:
            self._timers.hold(queue, call, lambda: self._scheduler.add(queue, call), seconds)
        else:
            self._scheduler.add(queue, call)

    def refuse(self, queue: ServiceQueue, delivery: Delivery, properties: Properties | None, reason: str) -> None:
        """Refuse a message that is not a call: an error for a caller that waits, else a dead letter; counted."""
        name = queue.spec.name
        queue.counts["refused"] += 1
        logger.error("a message for %s is refused: %s", name, reason)
        if properties is not None:
            call = Call(delivery, properties, (), {}, None)
            whole = problem_with_headers({"task": name, **properties.headers}) is None
            if call.direct or (whole and properties.reply_to):
                self._outcomes.settle(queue, call, failed(CodecError(f"the call of {name} cannot be run: {reason}")))
                return
            if not queue.spec.response and self._outcomes.give_up(queue, call, reason):
                return
        self._outbox.reject(delivery.tag, requeue=False)


def _readable(expires: Any) -> bool:
    if expires is None or (type(expires) is str and len(expires) == EXPIRES_BYTES and expires.endswith("+00:00")):
        return True  # the form that our clients write
    return is_moment(expires)
