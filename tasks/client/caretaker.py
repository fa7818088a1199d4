"""One thread per process that looks after calls while their callers do other things.

It keeps one-way calls until the broker has confirmed them: it sends again what a full queue refused, replaces a lost
connection, and delivers the calls of threads that have ended. It also takes in the answers of calls that have
a callback. It sleeps while there is neither.
"""

from __future__ import annotations

import atexit
import os
import select
import threading
import time
from typing import Any, Protocol

from celery.utils.log import get_logger

logger = get_logger(__name__)

POLL_EVERY = 0.05  # s between two looks at a client that has unconfirmed calls
AT_EXIT = 5.0  # s that an ending process gives its unconfirmed calls


class CaredClient(Protocol):
    """A client whose calls may have to be looked after."""

    @property
    def unconfirmed(self) -> int:
        """Return the number of its one-way calls that the broker has not confirmed yet."""

    @property
    def attended(self) -> int:
        """Return the number of its calls that have a callback and have not ended."""

    @property
    def link(self) -> Any:
        """Return its connection; None while it has none that can be watched."""

    def tend(self) -> None:
        """Take in what has arrived, send what is due, reconnect; do nothing while another thread does."""


class Caretaker:
    """Tends clients until none of their calls needs it. It holds them, and so their connections, that long."""

    def __init__(self) -> None:
        self._clients: set[CaredClient] = set()
        self._wake = threading.Condition()
        self._thread: threading.Thread | None = None

    def watch(self, client: CaredClient) -> None:
        """Look after `client` while it has calls that are unconfirmed or have a callback."""
        with self._wake:
            if client in self._clients:
                return
            self._clients.add(client)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="calls-under-way", daemon=True)
                self._thread.start()
            self._wake.notify()

    def flush(self, timeout: float) -> int:
        """Wait up to `timeout` s until nothing is unconfirmed; return how many calls still are."""
        limit = time.monotonic() + timeout
        while (left := sum(client.unconfirmed for client in list(self._clients))) and time.monotonic() < limit:
            time.sleep(POLL_EVERY / 5)
        return left

    def after_fork(self) -> None:
        """Start empty in a child: the parent looks after the parent's calls."""
        self._clients, self._wake, self._thread = set(), threading.Condition(), None

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._clients:
                    self._wake.wait()
                clients = list(self._clients)
            for client in clients:
                try:
                    client.tend()
                except Exception:
                    logger.exception("looking after calls under way failed")
                with self._wake:
                    # Callers count a call before they call `watch`, so none is overlooked.
                    if not client.unconfirmed and not client.attended:
                        self._clients.discard(client)
            _wait_for_answers(clients)
            del clients, client


def _wait_for_answers(clients: list[CaredClient]) -> None:
    """Return when an answer may have come for a call with a callback, after POLL_EVERY at the latest."""
    poll, watched = select.poll(), False
    for client in clients:
        if client.attended and (link := client.link) is not None:
            try:
                poll.register(link.fileno(), select.POLLIN)
                watched = True
            except (OSError, ValueError):
                continue  # lost, which `tend` finds out
    if not watched:
        time.sleep(POLL_EVERY)
    elif any(event != select.POLLIN for _, event in poll.poll(1000 * POLL_EVERY)):
        time.sleep(POLL_EVERY)  # closed meanwhile: it would be reported again and again


caretaker = Caretaker()
os.register_at_fork(after_in_child=caretaker.after_fork)


@atexit.register
def _flush() -> None:
    left = caretaker.flush(AT_EXIT)
    if left:
        logger.error("this process ends with %d one-way calls that the broker has not confirmed", left)
