"""Sending without an answer, with back-pressure: when the queue is full, the sender waits instead of growing it."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any

from amqp.exceptions import MessageNacked
from celery.utils.log import get_logger

from warren.errors import BrokerError

logger = get_logger(__name__)

FIRST_WAIT = 0.002  # s between tries while the queue is full, doubled up to LAST_WAIT
LAST_WAIT = 0.1


class BoundedSender:
    """Sends tasks to one bounded queue and returns once the broker has confirmed each.

    RabbitMQ refuses a publish over the queue's max-length (reject-publish); a Redis broker knows no bounds, so there
    the length is looked at first. `stopping` ends a wait early: `send` then returns False and the task was not sent.
    """

    def __init__(self, app: Any, queue: Any, bound: int, stopping: threading.Event, patience: float = 120.0) -> None:
        self.app, self.queue, self.bound, self.stopping, self.patience = app, queue, bound, stopping, patience
        self.confirmed = 0
        self.waited = 0.0  # s spent waiting for room
        self._bounded_by_broker = app.connection_for_write().transport.driver_type == "amqp"

    def send(self, name: str, args: tuple[Any, ...], **options: Any) -> bool:
        """Send task `name`; True when the broker has it. Raises BrokerError when it is away for over `patience` s."""
        wait, lost_since, started = FIRST_WAIT, None, time.monotonic()
        while not self.stopping.is_set():
            try:
                if self._has_room():
                    self.app.send_task(name, args=args, queue=self.queue, ignore_result=True, argsrepr="", **options)
                    self.confirmed += 1
                    self.waited += time.monotonic() - started
                    return True
                lost_since = None
            except MessageNacked:
                lost_since = None
            except self._connection_errors() as error:
                lost_since = lost_since or time.monotonic()
                if time.monotonic() - lost_since > self.patience:
                    raise BrokerError(f"the broker has been away for {self.patience:.0f} s: {error}") from error
                logger.warning("cannot send %s, trying again: %s", name, error)
                wait = LAST_WAIT
            self.stopping.wait(wait * random.uniform(0.5, 1.0))
            wait = min(2 * wait, LAST_WAIT)
        return False

    def _has_room(self) -> bool:
        if self._bounded_by_broker:
            return True
        with self.app.connection_for_write() as connection, connection.channel() as channel:
            return bool(self.queue(channel).queue_declare(passive=True).message_count < self.bound)

    def _connection_errors(self) -> tuple[type[BaseException], ...]:
        connection = self.app.connection_for_write()
        errors: tuple[type[BaseException], ...] = connection.connection_errors + connection.channel_errors
        from kombu.exceptions import OperationalError

        return (*errors, OperationalError)


def retry_until(condition: Callable[[], bool], stopping: threading.Event, timeout: float, every: float = 0.05) -> bool:
    """Wait until `condition()` holds, `stopping` is set or `timeout` s have passed; True when it holds."""
    deadline = time.monotonic() + timeout
    while not condition():
        if stopping.wait(every) or time.monotonic() > deadline:
            return condition()
    return True
