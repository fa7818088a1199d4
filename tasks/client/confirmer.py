"""One thread a process that keeps one-way calls until the broker has them, while their senders do other things.

What a full queue refused is sent again, a lost connection is replaced, and the calls of a thread that has ended are
still delivered. It sleeps while nothing is unconfirmed.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from typing import Protocol

from celery.utils.log import get_logger

logger = get_logger(__name__)

POLL_EVERY = 0.05  # s between polls of each client that has unconfirmed calls
AT_EXIT = 5.0  # s that an ending process gives its unconfirmed calls


class Sender(Protocol):
    """A client with one-way calls."""

    @property
    def unconfirmed(self) -> int:
        """How many of its calls the broker does not have yet."""

    def tend(self) -> None:
        """Take in what has arrived, send what is due, reconnect; not if another thread does."""


class Confirmer:
    """Polls clients until nothing of theirs is unconfirmed. Holds them, and so their connections, that long."""

    def __init__(self) -> None:
        self._senders: set[Sender] = set()
        self._wake = threading.Condition()
        self._thread: threading.Thread | None = None

    def watch(self, sender: Sender) -> None:
        """`sender` has unconfirmed calls."""
        with self._wake:
            if sender in self._senders:
                return
            self._senders.add(sender)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="unconfirmed-calls", daemon=True)
                self._thread.start()
            self._wake.notify()

    def flush(self, timeout: float) -> int:
        """Wait up to `timeout` s until nothing is unconfirmed; how many calls are."""
        limit = time.monotonic() + timeout
        while (left := sum(sender.unconfirmed for sender in list(self._senders))) and time.monotonic() < limit:
            time.sleep(POLL_EVERY / 5)
        return left

    def after_fork(self) -> None:
        """In a child: the parent sends what is the parent's."""
        self._senders, self._wake, self._thread = set(), threading.Condition(), None

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._senders:
                    self._wake.wait()
                senders = list(self._senders)
            for sender in senders:
                try:
                    sender.tend()
                except Exception:
                    logger.exception("looking after unconfirmed calls failed")
                with self._wake:
                    if not sender.unconfirmed:  # `watch` is called after each call is counted: none is overlooked
                        self._senders.discard(sender)
            del senders, sender
            time.sleep(POLL_EVERY)


confirmer = Confirmer()
os.register_at_fork(after_in_child=confirmer.after_fork)


@atexit.register
def _flush() -> None:
    left = confirmer.flush(AT_EXIT)
    if left:
        logger.error("this process ends with %d one-way calls that the broker has not confirmed", left)
