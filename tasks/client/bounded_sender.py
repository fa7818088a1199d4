"""Sending without an answer, with back-pressure: when the queue is full, the sender waits instead of growing it."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any

from amqp.exceptions import MessageNacked, NotFound
from celery.utils.log import get_logger
from kombu.exceptions import OperationalError

from tasks import brokers
from tasks.admin.cleanup import waiting
from tasks.codec import claim_check
from tasks.topology import address
from warren.errors import BrokerError

logger = get_logger(__name__)

FIRST_WAIT = 0.002  # s between tries while the queue is full, doubled up to LAST_WAIT
LAST_WAIT = 0.1
AWAY_WAIT = 1.0  # s between tries while the broker is away


class BoundedSender:
    """Sends tasks to one bounded queue and returns once the broker has confirmed each.

    RabbitMQ refuses a publish over the queue's max-length (reject-publish). A Redis broker knows no bounds, so there
    the length is read first, as it is where `bound` is less than the queue's own. `bound` is asked for each time, so it
    may change. `stopping` ends a wait early: then `send` returns False and the task was not sent.
    """

    def __init__(
        self, app: Any, queue: Any, bound: Callable[[], int], stopping: threading.Event, patience: float = 120.0
    ) -> None:
        self.app, self.queue, self.bound, self.stopping, self.patience = app, queue, bound, stopping, patience
        self.confirmed = 0
        self.looked = 0  # times that room was looked for
        self.waited = 0.0  # s spent waiting for room
        self._connection = app.connection_for_write()  # to read the queue's length
        self._refused_from = queue.max_length if brokers.of(app).refuses else None  # the broker's own bound
        self._away = (OperationalError, *self._connection.connection_errors)

    def send(self, name: str, args: tuple[Any, ...], **options: Any) -> bool:
        """Send task `name`; True when the broker has it. Raises BrokerError when it is away for over `patience` s."""
        with claim_check.once() as sent:  # a long body is stored once, however often the queue refuses it
            if self._send(name, args, options):
                sent()
                return True
        return False

    def _send(self, name: str, args: tuple[Any, ...], options: dict[str, Any]) -> bool:
        wait, away_since, started = FIRST_WAIT, 0.0, time.monotonic()
        while not self.stopping.is_set():
            try:
                self.looked += 1
                bound = self.bound()
                looks_first = self._refused_from is None or bound < self._refused_from
                if away_since or looks_first:
                    # Left to itself, kombu would try again for seconds, and neither stop nor patience be heeded.
                    self._connection.ensure_connection(max_retries=1, interval_start=0)
                if not looks_first or waiting(self._connection, self.queue) < bound:
                    # retry=False: kombu takes a refusal for a lost connection and would reconnect.
                    self.app.send_task(
                        name, args=args, ignore_result=True, argsrepr="", retry=False, **address(self.queue), **options
                    )
                    self.confirmed += 1
                    self.waited += time.monotonic() - started
                    return True
                away_since = 0.0
            except NotFound as error:
                why = f"{error.reply_text}; was the run removed from the broker?"
                raise BrokerError(f"cannot send {name}: {why}") from error
            except self._away as error:
                if isinstance(error.__cause__, MessageNacked):
                    away_since = 0.0
                else:
                    self._connection.close()  # it may not have noticed yet
                    away_since, wait = away_since or time.monotonic(), AWAY_WAIT
                    if time.monotonic() - away_since > self.patience:
                        raise BrokerError(f"the broker has been away for {self.patience:.0f} s: {error}") from error
                    logger.warning("cannot send %s, trying again: %s", name, error)
            self.stopping.wait(wait * random.uniform(0.5, 1.0))
            wait = min(2 * wait, AWAY_WAIT if away_since else LAST_WAIT)
        return False
