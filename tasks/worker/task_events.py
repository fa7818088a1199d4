"""Celery's task events for a share of the calls: Flower sees a sample, and the calls keep their speed."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from celery.utils.log import get_logger

from tasks.app.outcome import Failed
from tasks.worker.middleware import Middleware
from tasks.worker.service_queue import Call, ServiceQueue
from warren.errors import ConfigurationError

logger = get_logger(__name__)

RATE_VARIABLE = "WARREN_EVENT_RATE"  # share of calls that send task events, where a process names none
MOST_WAITING = 1000  # calls whose events wait to be sent
CLOSED_WITHIN = 1.0  # s that a worker which ends waits for the last of them

Told = tuple[str, Any, Failed | None, float, float]  # service, properties, failure, s that it ran, when it had run


def given_rate() -> float | None:
    """Return the share that the environment names, or None. Raises ConfigurationError for other values."""
    text = os.environ.get(RATE_VARIABLE, "")
    if not text:
        return None
    try:
        rate = float(text)
    except ValueError:
        rate = -1.0
    if not 0.0 <= rate <= 1.0:
        raise ConfigurationError(f"{RATE_VARIABLE}={text}: not a share of the calls; use a number from 0 to 1, as 0.01")
    return rate


class TaskEvents(Middleware):
    """Sends task-received, -started and -succeeded or -failed for one call in `1 / rate`.

    A thread of its own sends them, since a publish waits for as long as an alarm of the broker lasts. Meanwhile the
    events of MOST_WAITING calls are kept.
    """

    def __init__(self, app: Any, hostname: str, rate: float) -> None:
        self.rate = min(max(rate, 0.0), 1.0)
        self.lost = 0
        self._app, self._hostname = app, hostname
        self._seen = self._sent = 0
        self._waiting: queue.Queue[Told | None] = queue.Queue(MOST_WAITING)
        self._thread: threading.Thread | None = None
        self._dispatcher: Any = None

    def after_run(self, queue: ServiceQueue, calls: Sequence[Call], outcomes: Sequence[Any], seconds: float) -> None:
        """Queue the events of the calls whose turn it is."""
        for call, outcome in zip(calls, outcomes, strict=True):
            self._seen += 1
            if int(self._seen * self.rate) > self._sent:
                self._sent += 1
                failure = outcome if isinstance(outcome, Failed) else None
                self._tell((queue.spec.name, call.properties, failure, seconds, time.time()))

    def _tell(self, told: Told) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="task-events", daemon=True)
            self._thread.start()
        try:
            self._waiting.put_nowait(told)
        except queue.Full:
            self.lost += 1
            if self.lost == 1:
                logger.warning("task events are lost: over %d of them wait for the broker", MOST_WAITING)

    def _run(self) -> None:
        while (told := self._waiting.get()) is not None:
            try:
                self._send(*told)
            except Exception as error:  # watching must never stop what is watched
                logger.debug("a task event was not sent: %s", error)
                self._disconnect()
        self._disconnect()

    def _send(self, name: str, properties: Any, failure: Failed | None, runtime: float, now: float) -> None:
        if self._dispatcher is None:
            connection = self._app.connection_for_write()
            self._dispatcher = self._app.events.Dispatcher(connection, hostname=self._hostname, enabled=True)
        headers = properties.headers
        uuid = headers.get("id") or properties.correlation_id
        send = self._dispatcher.send
        described = {
            "name": name, "args": headers.get("argsrepr") or "", "kwargs": headers.get("kwargsrepr") or "",
            "root_id": headers.get("root_id"), "parent_id": headers.get("parent_id"),
            "retries": headers.get("retries") or 0, "eta": headers.get("eta"), "expires": headers.get("expires"),
        }  # fmt: skip
        send("task-received", uuid=uuid, timestamp=now - runtime, **described)
        send("task-started", uuid=uuid, timestamp=now - runtime)
        if failure is not None:
            error = f"{failure.kind}({failure.message!r})"
            send("task-failed", uuid=uuid, exception=error, traceback=failure.traceback)
        else:
            send("task-succeeded", uuid=uuid, result="", runtime=runtime)

    def close(self) -> None:
        """Send the events that wait, for a moment at most, and drop the connection."""
        if self._thread is not None:
            with suppress(queue.Full):
                self._waiting.put_nowait(None)
            self._thread.join(CLOSED_WITHIN)

    def _disconnect(self) -> None:
        """Drop the connection; the next event makes a new one."""
        if self._dispatcher is not None:
            connection, self._dispatcher = self._dispatcher.connection, None
            try:
                connection.release()
            except Exception as error:
                logger.debug("closing the events' connection: %s", error)
