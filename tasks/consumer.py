"""What differs from Celery's own consumer: no message is lost because it cannot be read, no claim outlives its use.

Celery acknowledges what it cannot decode, so it would be gone without a trace. Here it goes to the dead-letter queue,
where a person can look at it; when only Redis was away (the body is behind a claim check), it is tried again.
"""

from __future__ import annotations

from typing import Any

import celery
from celery.utils.log import get_logger
from celery.worker.consumer import Consumer as CeleryConsumer
from celery.worker.request import Request as CeleryRequest

from tasks import claims
from warren.errors import BrokerError

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
    """Base of every task of the app."""

    abstract = True
    Request = "tasks.consumer:Request"


class Request(CeleryRequest):  # type: ignore[misc]
    """Celery's request, which forgets the claim behind its message once that is acknowledged."""

    def acknowledge(self) -> None:
        """Tell the broker that the task is done."""
        first = not self.acknowledged
        super().acknowledge()
        if first:
            claims.release(self.message.body)
