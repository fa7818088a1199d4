"""A Celery consumer that no message can end, that loses no message unread, and that removes claims after use.

Celery acknowledges a message that it cannot decode, so the message is gone without a trace. A message that is malformed
in another way raises in Celery's event loop; that ends the worker, and then each worker that gets the message next.

Here every message is checked first. A message that is not a task goes to the dead letters, with the reason in a header,
where a person can look at it. If only Redis was away (the body is behind a claim check), the message is tried again.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import Any

import amqp
import celery
import redis
from celery.app.task import Context
from celery.utils.log import get_logger
from celery.worker import loops
from celery.worker.consumer import Consumer as CeleryConsumer
from celery.worker.request import Request as CeleryRequest

import tasks.app.revoking  # noqa: F401  importing it changes how every worker of a run revokes
from tasks import brokers
from tasks.app.dead_letters import letter_of, send_dead_letter
from tasks.app.formats import answering
from tasks.app.outcome import Outcome, for_celery, outcome_of
from tasks.app.protocol import problem_with_body, problem_with_headers
from tasks.app.redelivery import DELIVERIES, Deliveries, Message, was_redelivered
from tasks.codec import claim_check
from tasks.middleware import Call
from warren.errors import BrokerError, ClaimUsed, CodecError, DeliveriesExceeded

logger = get_logger(__name__)

HELD_TOO_LONG = "delivery acknowledgement"  # in RabbitMQ's reason for closing a channel
AGAIN_AFTER = 1.0  # s until a message whose claim could not be fetched goes back to its queue

Settle = Callable[..., Any]  # (logger, the connection's errors, ...): acknowledges or rejects a message


class SettleLog(logging.LoggerAdapter[logging.Logger]):
    """The logger that Celery and kombu get for acknowledging and rejecting messages: a lost connection is a warning.

    They log it as a critical error with a traceback. But nothing is wrong: the broker delivers the message again, and
    a message that had been dealt with is recognised then.
    """

    def critical(self, message: object, tag: object, reason: object, **_: object) -> None:  # type: ignore[override]
        """Log a warning, from kombu's arguments in their order."""
        self.warning(
            "message %s was not settled, since its connection has gone: it is delivered again (%s)", tag, reason
        )


settle_log = SettleLog(logger, {})


class Consumer(CeleryConsumer):  # type: ignore[misc]
    """Celery's consumer, with every message checked before Celery acts on it.

    `refused`: reason -> messages that went to the dead letters because no worker can run them.
    """

    class Blueprint(CeleryConsumer.Blueprint):  # type: ignore[misc]
        """Celery's steps without the one that declares 28 queues for delayed calls beside quorum queues."""

        default_steps = tuple(step for step in CeleryConsumer.Blueprint.default_steps if "delayed_delivery" not in step)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.refused: Counter[str] = Counter()
        super().__init__(*args, **kwargs)

    def loop(self, *args: Any) -> None:
        """Run Celery's event loop; a channel closed because a message was held too long counts as a lost connection.

        Celery would end the worker. The message is delivered again, so its task runs twice, as after any lost
        connection.
        """
        run = loops.asynloop if self.hub else loops.synloop
        try:
            run(*args)
        except amqp.PreconditionFailed as error:
            if HELD_TOO_LONG not in str(error):
                raise
            logger.error(
                "the broker took back a message that was held for longer than its consumer_timeout, and will again: "
                "raise consumer_timeout in rabbitmq.conf above the time that a rollout or an update takes (%s)", error,
            )  # fmt: skip
            raise amqp.RecoverableConnectionError("a message was held for longer than consumer_timeout") from error

    def create_task_handler(self, *args: Any, **kwargs: Any) -> Callable[[Any], None]:
        """Return the function that takes each message; no message makes it raise, only a lost connection."""
        receive = super().create_task_handler(*args, **kwargs)

        def receive_checked(message: Any) -> None:
            try:
                if self._check(message):
                    receive(message)
            except self.connection_errors:
                raise  # the broker's; Celery connects anew, and the message is delivered again
            except Exception as error:
                if message.acknowledged:
                    logger.exception("a message made trouble after it had been acknowledged or rejected")
                elif isinstance(error, (redis.RedisError, BrokerError)):
                    self._again(message, error)
                else:
                    self.refuse(message, f"{type(error).__name__}: {error}")

        return receive_checked

    def _check(self, message: Any) -> bool:
        """Return whether the message can be run; refuse it, or put it off, where it cannot."""
        problem = problem_with_headers(message.headers)
        if problem is None:
            try:
                problem = problem_with_body(message.payload)
            except Exception as error:
                self.on_decode_error(message, error)
                return False
        if problem is None and message.headers["task"] not in self.strategies:
            problem = f"this worker has no task {message.headers['task']!r}"
        if problem is not None:
            self.refuse(message, problem)
        return problem is None

    def refuse(self, message: Any, reason: str) -> None:
        """Move `message` to the dead letters, with `reason`."""
        reason = f"the message cannot be run: {reason}"
        self.refused[reason] += 1
        logger.error("a message goes to the dead letters: %s", reason)
        self._tell(message, reason)
        if send_dead_letter(self.app, letter_of(self.app, message), reason):
            message.ack_log_error(settle_log, self.connection_errors)
        else:
            message.reject_log_error(settle_log, self.connection_errors)

    def _tell(self, message: Any, reason: str) -> None:
        """Store the reason as the call's failure on a broker without dead letters, for a caller that waits."""
        headers = message.headers
        waits = problem_with_headers(headers) is None and not headers.get("ignore_result")
        if not waits or brokers.of(self.app).dead_letters:
            return
        try:
            with answering(message.content_type or ""):
                self.app.backend.mark_as_failure(headers["id"], CodecError(reason), request=Context(headers))
        except Exception as error:
            logger.warning("the caller of %s could not be told: %s", headers["task"], error)

    def on_decode_error(self, message: Any, exc: Exception) -> None:
        """Refuse `message`, or give it back a little later when what failed may heal."""
        cause = exc.args[0] if exc.args and isinstance(exc.args[0], Exception) else exc
        if message.delivery_info.get("consumer_tag") in (message.channel.no_ack_consumers or ()):
            logger.error("a message of %s cannot be read: %s", message.delivery_info.get("exchange"), cause)
        elif isinstance(cause, BrokerError):
            self._again(message, cause)
        elif isinstance(cause, ClaimUsed):
            # Its worker was killed before the broker read the acknowledgement, or it was published twice.
            logger.info("dropped a redelivered message that had been dealt with: %s", cause)
            message.ack_log_error(settle_log, self.connection_errors)
        else:
            self.refuse(message, str(cause))

    def _again(self, message: Any, error: Exception) -> None:
        logger.warning("a message cannot be read for now, trying again: %s", error)
        self.timer.call_after(AGAIN_AFTER, message.reject_log_error, (settle_log, self.connection_errors, True))


class Task(celery.Task):  # type: ignore[misc]
    """Base of every task of the app. `deliveries` of one message, after which it is given up (see redelivery.py)."""

    abstract = True
    Request = "tasks.app.celery_consumer:Request"
    deliveries = DELIVERIES

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the task; in a worker, only if its message has not been delivered too often."""
        request = self.request
        if request.called_directly:
            return super().__call__(*args, **kwargs)
        counts: Deliveries = self.app.warren_deliveries
        message = Message(request.id, was_redelivered(request.delivery_info, request.headers))
        (outcome,) = counts.run(self.name, self.deliveries, self._run_all, [(args, kwargs)], [message])
        if isinstance(outcome, Outcome):
            raise for_celery(outcome)
        return outcome

    def _run_all(self, calls: list[tuple[Any, Any]]) -> list[Any]:
        return [self._run_one(args, kwargs) for args, kwargs in calls]

    def _run_one(self, args: Any, kwargs: Any) -> Any:
        try:
            return self.run(*args, **kwargs)
        except BaseException as error:
            return outcome_of(error)


class Request(CeleryRequest):  # type: ignore[misc]
    """Celery's request, which forgets the claim behind its message once that is acknowledged.

    A message that was delivered too often goes to the dead letters with the reason.
    """

    awaited = None  # no client waits on a connection of ours (see tasks.app.redelivery.Delivered)
    reason = ""  # why it is given up
    view: Call | None = None  # the call as middleware and the service see it

    def __init__(self, message: Any, *, on_ack: Settle, on_reject: Settle, **settings: Any) -> None:
        def plainly(settle: Settle) -> Settle:
            return lambda _, *arguments: settle(settle_log, *arguments)

        super().__init__(message, on_ack=plainly(on_ack), on_reject=plainly(on_reject), **settings)

    @property
    def headers(self) -> Any:
        """Return all headers of its message."""
        return self.message.headers

    @property
    def priority(self) -> int:
        """Return the priority, the highest running first; in messages of a Redis broker the lowest number does."""
        return -int(self.message.properties.get("priority") or 0)

    @property
    def redelivered(self) -> bool:
        """Return whether the broker delivered it before."""
        return was_redelivered(self.message.delivery_info, self.message.headers)

    def on_failure(self, exc_info: Any, send_failed_event: bool = True, return_ok: bool = False) -> Any:
        """Record a failure as Celery does; one delivered too often is to go to the dead letters with the reason."""
        error = exc_info.exception
        error = getattr(error, "exc", error)  # billiard wraps it together with its traceback
        if isinstance(error, DeliveriesExceeded):
            self.reason = str(error)
            logger.error("%s", self.reason)
        return super().on_failure(exc_info, send_failed_event, return_ok)

    def reject(self, requeue: bool = False) -> None:
        """Refuse the message: back to its queue, or to the dead letters."""
        for_good = bool(self.reason) and not requeue and not self.acknowledged
        if for_good and send_dead_letter(self._app, letter_of(self._app, self.message), self.reason):
            super().acknowledge()  # not this class's, which removes the claim: the copy needs it
            return
        if not requeue and not self.acknowledged and brokers.of(self._app).dead_letters:
            claim_check.keep(self.message.body)
        super().reject(requeue)

    def acknowledge(self) -> None:
        """Tell the broker that the task is done."""
        first = not self.acknowledged
        super().acknowledge()
        if first:
            claim_check.release(self.message.body, used=True)
