"""The one Celery worker of a Warren process: how it is made, run, stopped, and what it logs."""

from __future__ import annotations

import logging
import socket
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from celery import signals
from celery.exceptions import CPendingDeprecationWarning, Reject, SecurityWarning

from tasks.app import RunApp
from tasks.compat import log_shutdowns
from tasks.worker.pool import OneThreadPool, stop_worker
from warren import log_fields

# Celery warns of root and pickle, which no Warren app accepts, and at each lost connection of changes in its version 6.
SILENCED = (SecurityWarning, CPendingDeprecationWarning)
NOISY = ("celery.worker.strategy", "celery.app.trace", "kombu.mixins")  # two lines of log per task


def make_worker(app: Any, name: str, queues: Sequence[str] | None, *, log_level: str = "INFO", **options: Any) -> Any:
    """Return a Celery worker with one thread for tasks that consumes `queues`; None: those of the app.

    `name`: its node name on this host. `options`: further arguments of Celery's WorkController.
    """
    for category in SILENCED:
        warnings.filterwarnings("ignore", category=category)
    return app.Worker(
        hostname=f"{name}@{socket.gethostname()}",
        pool=OneThreadPool,
        concurrency=1,
        queues=queues,
        loglevel=log_level,
        without_gossip=True,
        without_mingle=True,
        quiet=True,
        **options,
    )


def run_worker(worker: Any, on_ready: Callable[[], object], on_stopping: Callable[[], object]) -> int:
    """Run a Celery worker until it is told to stop, and return its exit status.

    `on_ready` is called once it consumes, `on_stopping` when it was told to stop but still finishes what it holds.
    An error of `on_ready` stops the worker and is raised again.
    """
    failures: list[Exception] = []

    def ready(**_: Any) -> None:
        try:
            on_ready()
        except Exception as error:  # Celery would log it and consume on, although nothing was begun
            failures.append(error)
            stop_worker()

    def stopping(**_: Any) -> None:
        if isinstance(worker.app, RunApp):
            worker.app.hurry()
        on_stopping()

    signals.worker_ready.connect(ready, weak=False)
    signals.worker_shutting_down.connect(stopping, weak=False)
    try:
        worker.start()
    finally:
        signals.worker_ready.disconnect(ready)
        signals.worker_shutting_down.disconnect(stopping)
    if failures:
        raise failures[0]
    return int(worker.exitcode or 0)


def log_to_stderr(level: str, log_format: str = "text") -> None:
    """Write one line per log record to standard error, which the launcher sends to the process's log file.

    `log_format`: "text", or "json": an object per line (see warren.log_fields).
    """
    logging.basicConfig(
        stream=sys.stderr, level=level.upper(), format="%(asctime)s %(levelname)-7s %(name)s: %(message)s", force=True
    )
    if log_format == "json":
        logging.getLogger().handlers[0].setFormatter(log_fields.JsonFormatter())
        log_fields.log_uncaught()
        log_shutdowns(logging.getLogger("celery.apps.worker").info)
    for noisy in NOISY:
        logging.getLogger(noisy).setLevel(logging.WARNING)
    logging.getLogger("celery.app.trace").addFilter(without_traceback_of_reject)


def without_traceback_of_reject(record: logging.LogRecord) -> bool:
    """Keep every record; drop the traceback of a message that a task gives back, which is not a fault."""
    if record.exc_info and isinstance(record.exc_info[1], Reject):
        record.exc_info = record.exc_text = None
    return True
