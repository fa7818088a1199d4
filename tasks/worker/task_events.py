"""Celery's task events for a share of the calls: Flower sees a sample, and the calls keep their speed."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

from celery.utils.log import get_logger

from tasks.app.outcome import Failed
from tasks.worker.middleware import Middleware
from tasks.worker.service_queue import Call, ServiceQueue
from warren.errors import ConfigurationError

logger = get_logger(__name__)

RATE_VARIABLE = "WARREN_EVENT_RATE"  # share of calls that send task events, where a process names none


def given_rate() -> float | None:
    """The share that the environment names, or None. Raises ConfigurationError for what is no share."""
    text = os.environ.get(RATE_VARIABLE, "")
    if not text:
        return None
    try:
        rate = float(text)
    except ValueError:
        rate = -1.0
    if not 0.0 <= rate <= 1.0:
        raise ConfigurationError(f"{RATE_VARIABLE}={text}: is no share of the calls; use a number from 0 to 1, as 0.01")
    return rate


class TaskEvents(Middleware):
    """Sends task-received, -started and -succeeded or -failed for one call in `1 / rate`. One thread may use it."""

    def __init__(self, app: Any, hostname: str, rate: float) -> None:
        self.rate = min(max(rate, 0.0), 1.0)
        self._app, self._hostname = app, hostname
        self._seen = self._sent = 0
        self._dispatcher: Any = None

    def after_run(self, queue: ServiceQueue, calls: Sequence[Call], outcomes: Sequence[Any], seconds: float) -> None:
        """Send the events of those calls whose turn it is."""
        for call, outcome in zip(calls, outcomes, strict=True):
            self._seen += 1
            if int(self._seen * self.rate) > self._sent:
                self._sent += 1
                try:
                    self._send(queue.spec.name, call.properties, outcome, seconds)
                except Exception as error:  # whoever watches must never stop what is watched
                    logger.debug("a task event was not sent: %s", error)
                    self.close()

    def _send(self, name: str, properties: Any, outcome: Any, runtime: float) -> None:
        if self._dispatcher is None:
            connection = self._app.connection_for_write()
            self._dispatcher = self._app.events.Dispatcher(connection, hostname=self._hostname, enabled=True)
        headers, now = properties.headers, time.time()
        uuid = headers.get("id") or properties.correlation_id
        send = self._dispatcher.send
        described = {
            "name": name, "args": headers.get("argsrepr") or "", "kwargs": headers.get("kwargsrepr") or "",
            "root_id": headers.get("root_id"), "parent_id": headers.get("parent_id"),
            "retries": headers.get("retries") or 0, "eta": headers.get("eta"), "expires": headers.get("expires"),
        }  # fmt: skip
        send("task-received", uuid=uuid, timestamp=now - runtime, **described)
        send("task-started", uuid=uuid, timestamp=now - runtime)
        if isinstance(outcome, Failed):
            error = f"{outcome.kind}({outcome.message!r})"
            send("task-failed", uuid=uuid, exception=error, traceback=outcome.traceback)
        else:
            send("task-succeeded", uuid=uuid, result="", runtime=runtime)

    def close(self) -> None:
        """Drop the connection; the next event makes a new one."""
        if self._dispatcher is not None:
            connection, self._dispatcher = self._dispatcher.connection, None
            try:
                connection.release()
            except Exception as error:
                logger.debug("closing the events' connection: %s", error)
