"""Sending without an answer, with back-pressure: when the queue is full, the sender waits instead of growing it."""

from __future__ import annotations

import contextlib
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
from tasks.app.reader import ReaderHere
from tasks.codec import claim_check
from tasks.topology import address
from warren.errors import BrokerError

logger = get_logger(__name__)

FIRST_WAIT = 0.002  # s between tries while the queue is full, doubled up to LAST_WAIT
LAST_WAIT = 0.03  # s, where at most SHORT messages may wait; up to eight times as long where more may
SHORT = 4
AWAY_WAIT = 1.0  # s between tries while the broker is away


class BoundedSender:
    """Sends tasks to one bounded queue and returns once the broker has confirmed each.

    RabbitMQ refuses a publish over the queue's max-length (reject-publish). A Redis broker knows no bounds, so there
    the length is read first, as it is where `bound` is less than the queue's own. `bound` is asked for each time, so it
    may change. `stopping` ends a wait early: then `send` returns False and the task was not sent. Senders to several
    queues, used by one thread, may share the `connection` on which lengths are read.
    """

    def __init__(
        self,
        app: Any,
        queue: Any,
        bound: Callable[[], int],
        stopping: threading.Event,
        patience: float = 120.0,
        connection: Any = None,
    ) -> None:
        self.app, self.queue, self.bound, self.stopping, self.patience = app, queue, bound, stopping, patience
        self.confirmed = 0
        self.looked = 0  # times that room was looked for
        self.waited = 0.0  # s spent waiting for room
        self.found_room = True  # the last `send` or `wait_for_room` found room at the first look
        self._connection = connection or app.connection_for_write()  # to read the queue's length
        self._refused_from = queue.max_length if brokers.of(app).refuses else None  # the broker's own bound
        self._away = (OperationalError, *self._connection.connection_errors)
        self._away_since = 0.0  # monotonic; 0 while the broker answers
        claims = getattr(app, "warren_claims", None)  # an app of another make has none
        self._reader = (lambda: None) if claims is None else ReaderHere(claims.client, app.warren_topology, queue)
        self._offered: tuple[Any, ...] = ()  # the arguments offered last that found no room,
        self._made: claim_check.Made = []  # and where their bytes wait

    def send(self, name: str, args: tuple[Any, ...], looked: Callable[[], None] = lambda: None, **options: Any) -> bool:
        """Send task `name`; True when the broker has it. Raises BrokerError when it is away for over `patience` s.

        `looked` is called whenever room was found, before the message leaves.
        """
        with claim_check.once() as sent:  # a long body is stored once, however often the queue refuses it
            wait, started = FIRST_WAIT, time.monotonic()
            self.found_room = True
            while not self.stopping.is_set():
                if self._try(name, args, options, looked):
                    self.waited += time.monotonic() - started
                    sent()
                    return True
                self.found_room = False
                if self._away_since:
                    wait = AWAY_WAIT
                self.stopping.wait(wait * random.uniform(0.5, 1.0))
                wait = min(2 * wait, AWAY_WAIT if self._away_since else self._last_wait())
        return False

    def _last_wait(self) -> float:
        """Return the longest pause between tries, in s; longer for a longer queue, which more senders may look at."""
        return LAST_WAIT * min(max(1.0, self.bound() / SHORT), 8.0)

    def wait_for_room(self, enough: Callable[[bool], bool] = bool) -> None:
        """Wait until the queue has room for one more; return at once while the broker is away, which `send` deals with.

        `enough` is called at each look with whether there is room, and returns True where the wait may end.
        """
        wait, self.found_room = FIRST_WAIT, True
        with contextlib.suppress(*self._away, NotFound):
            while not self.stopping.is_set() and not enough(waiting(self._connection, self.queue) < self.bound()):
                self.found_room = False
                self.stopping.wait(wait * random.uniform(0.5, 1.0))
                wait = min(2 * wait, self._last_wait())

    def offer(self, name: str, args: tuple[Any, ...], **options: Any) -> bool:
        """Send task `name` if there is room for it now; True when the broker has it, False also while it is away.

        Raises BrokerError when it is away for over `patience` s. A task for which this returns False may have arrived
        all the same, if the broker went away before it confirmed it. So offer the task again, with the very same
        `args`, or call `withdraw`.
        """
        if args is not self._offered:
            self.withdraw()
            self._offered = args
        with claim_check.once(self._made) as sent:
            if self._try(name, args, options):
                sent()
                self._offered = ()
                return True
        return False

    def withdraw(self) -> None:
        """Give up the task that was offered last, and release its claims."""
        self._offered = ()
        claim_check.forget(self._made)

    def _try(
        self, name: str, args: tuple[Any, ...], options: dict[str, Any], looked: Callable[[], None] = lambda: None
    ) -> bool:
        try:
            self.looked += 1
            bound = self.bound()
            looks_first = self._refused_from is None or bound < self._refused_from
            if self._away_since or looks_first:
                # Left to itself, kombu would try again for seconds, heeding neither stop nor patience.
                self._connection.ensure_connection(max_retries=1, interval_start=0)
            has_room = not looks_first or waiting(self._connection, self.queue) < bound
            if has_room:
                looked()
                # retry=False: kombu takes a refusal for a lost connection and would reconnect.
                with claim_check.shared(self._reader):
                    self.app.send_task(
                        name, args=args, ignore_result=True, argsrepr="", retry=False, **address(self.queue), **options
                    )
                self.confirmed += 1
            self._away_since = 0.0
            return has_room
        except NotFound as error:
            why = f"{error.reply_text}; was the run removed from the broker?"
            raise BrokerError(f"cannot send {name}: {why}") from error
        except self._away as error:
            if isinstance(error.__cause__, MessageNacked):
                self._away_since = 0.0
                return False
            self._connection.close()  # it may not have noticed yet
            self._away_since = self._away_since or time.monotonic()
            if time.monotonic() - self._away_since > self.patience:
                raise BrokerError(f"the broker has been away for {self.patience:.0f} s: {error}") from error
            logger.warning("cannot send %s, trying again: %s", name, error)
            return False
