"""What differs from Celery's own consumer: no message is lost because it cannot be read, no claim outlives its use.

Celery acknowledges what it cannot decode, so it would be gone without a trace. Here it goes to the dead-letter queue,
where a person can look at it; when only Redis was away (the body is behind a claim check), it is tried again.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import celery
from celery.utils.log import get_logger
from celery.worker.consumer import Consumer as CeleryConsumer
from celery.worker.request import Request as CeleryRequest

from tasks.app.redelivery import DELIVERIES, Deliveries, exceeded, put_aside, was_redelivered
from tasks.codec import claim_check
from warren.errors import BrokerError, DeliveriesExceeded

logger = get_logger(__name__)

AGAIN_AFTER = 1.0  # s until a message whose claim could not be fetched goes back to its queue


class Consumer(CeleryConsumer):  # type: ignore[misc]
    """Celery's consumer with that one difference."""

    def on_decode_error(self, message: Any, exc: Exception) -> None:
        """Reject `message` for good, or give it back a little later when what failed may heal."""
        cause = exc.args[0] if exc.args and isinstance(exc.args[0], Exception) else exc
        if isinstance(cause, BrokerError):
            logger.warning("a message cannot be read for now, trying again: %s", cause)
            self.timer.call_after(AGAIN_AFTER, message.reject_log_error, (logger, self.connection_errors, True))
        else:
            logger.error("a message that cannot be read goes to the dead-letter queue: %s", cause)
            message.reject_log_error(logger, self.connection_errors)


class Task(celery.Task):  # type: ignore[misc]
    """Base of every task of the app. `deliveries`: of one message, before it is given up (see redelivery.py)."""

    abstract = True
    Request = "tasks.app.celery_consumer:Request"
    deliveries = DELIVERIES

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run it; in a worker, if its message may be delivered so often."""
        request = self.request
        if request.called_directly:
            return super().__call__(*args, **kwargs)
        if not was_redelivered(request.delivery_info, request.headers):
            return self.run(*args, **kwargs)
        counts: Deliveries = self.app.warren_deliveries
        (number,) = counts.numbers([request.id])
        if number > self.deliveries:
            raise exceeded(self.name, request.id, self.deliveries)
        counts.begin([request.id])
        try:
            return self.run(*args, **kwargs)
        finally:
            counts.end([request.id])


class Request(CeleryRequest):  # type: ignore[misc]
    """Celery's request, which forgets the claim behind its message once that is acknowledged.

    A message that was delivered too often goes to the dead letters with the reason.
    """

    reason = ""  # why it is given up

    @property
    def redelivered(self) -> bool:
        """Whether the broker delivered it before."""
        return was_redelivered(self.message.delivery_info, self.message.headers)

    def on_failure(self, exc_info: Any, send_failed_event: bool = True, return_ok: bool = False) -> Any:
        """Celery's; what has been delivered too often is put aside instead of rejected."""
        error = exc_info.exception
        error = getattr(error, "exc", error)  # billiard wraps it together with its traceback
        if isinstance(error, DeliveriesExceeded):
            self.reason = str(error)
            logger.error("%s", self.reason)
        return super().on_failure(exc_info, send_failed_event, return_ok)

    def reject(self, requeue: bool = False) -> None:
        """Refuse the message: back to its queue, or to the dead letters."""
        if self.reason and not requeue and not self.acknowledged:
            message = self.message
            letter = SimpleNamespace(
                body=message.body,
                headers=message.headers,
                content_type=message.content_type,
                content_encoding=message.content_encoding,
                correlation_id=self.correlation_id,
                key=message.delivery_info["routing_key"],
            )
            if put_aside(self._app, letter, self.reason):
                super().acknowledge()  # not our own: the copy needs the claim
                return
        super().reject(requeue)

    def acknowledge(self) -> None:
        """Tell the broker that the task is done."""
        first = not self.acknowledged
        super().acknowledge()
        if first:
            claim_check.release(self.message.body)
