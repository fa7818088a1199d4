"""Logs what the user's own code raises in a service: a line that says where, and its traceback once.

Refusals, of which the caller is told and which are no fault, are logged at INFO without one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from typing import Any

from celery.utils.log import get_logger

from tasks.app.outcome import Failed
from warren.errors import DeliveriesExceeded, WarrenError
from warren.user_code import users_line

logger = get_logger(__name__)

LOG_EVERY = 10.0  # s between lines about failures of one kind at one place, after the first
MOST_PLACES = 100  # places remembered; at a further one all are forgotten, and count as new again
LONGEST = 300  # characters of an error's message in its line


class Failures:
    """The failures of one service. `newest`: the last one as a line for a person; "" where none has failed."""

    def __init__(self, service: str) -> None:
        self._service = service
        self.newest = ""
        # (exception, file and line) -> how many were not told, when one was told last
        self._seen: dict[tuple[str, str], tuple[int, float]] = {}

    def note(self, outcomes: Iterable[Any]) -> None:
        """Log the failures among these: the first at a place with its traceback, others now and then, with a count."""
        for outcome in outcomes:
            if isinstance(outcome, Failed) and not isinstance(outcome.error, DeliveriesExceeded):
                self._note(outcome)

    def _note(self, failure: Failed) -> None:
        said = describe(failure)
        refused = isinstance(failure.error, WarrenError) and failure.error.is_refusal
        if not refused:
            self.newest = said
        key, now = (failure.kind, users_line(failure.error)), time.monotonic()
        if key not in self._seen:
            if len(self._seen) >= MOST_PLACES:
                self._seen.clear()
            self._seen[key] = (0, now)
            if refused:
                logger.info("%s refuses: %s", self._service, said)
            else:
                logger.error("%s failed with %s\n%s", self._service, said, failure.traceback.rstrip())
            return
        untold, told_at = self._seen[key]
        if now - told_at >= LOG_EVERY:
            level, what = (logging.INFO, "refused") if refused else (logging.ERROR, "failed")
            logger.log(level, "%s %s %d times more, last with %s", self._service, what, untold + 1, said)
            self._seen[key] = (0, now)
        else:
            self._seen[key] = (untold + 1, told_at)


def describe(failure: Failed) -> str:
    """Describe a failure with its place: "ValueError: no such move (/home/me/worker.py:12)"."""
    message = " ".join(failure.message.split())[:LONGEST]
    place = users_line(failure.error)
    return f"{failure.kind}{f': {message}' if message else ''}{f' ({place})' if place else ''}"
