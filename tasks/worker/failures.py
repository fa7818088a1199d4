"""Logs what the user's own code raises in a service: a line that says where, and its traceback once.

Refusals, of which the caller is told and which are no fault, are logged at INFO without a traceback.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from celery.utils.log import get_logger

from tasks.app.outcome import Failed
from warren.errors import DeliveriesExceeded, WarrenError
from warren.user_code import users_line

logger = get_logger(__name__)

LOG_EVERY = 10.0  # s between lines about failures of one kind at one place, after the first
MOST_PLACES = 100  # places remembered; a further one replaces the one that was logged longest ago
LONGEST = 300  # characters of an error's message in its line


@dataclass
class Place:
    """Errors of one kind at one place: how many are `untold` since `told_at`, and the last of them."""

    refused: bool
    told_at: float
    said: str = ""
    untold: int = 0


class Failures:
    """The failures of one service. `newest`: the last one as a line for a person; "" where none has failed."""

    def __init__(self, service: str) -> None:
        self._service = service
        self.newest = ""
        self._seen: dict[tuple[str, str], Place] = {}  # by exception, and file and line

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
                self._tell(self._seen.pop(min(self._seen, key=lambda one: self._seen[one].told_at)))
            self._seen[key] = Place(refused, now)
            if refused:
                logger.info("%s refuses: %s", self._service, said)
            else:
                logger.error("%s failed with %s\n%s", self._service, said, failure.traceback.rstrip())
            return
        place = self._seen[key]
        place.untold, place.said = place.untold + 1, said
        if now - place.told_at >= LOG_EVERY:
            self._tell(place)
            place.untold, place.told_at = 0, now

    def _tell(self, place: Place) -> None:
        if place.untold:
            level, what = (logging.INFO, "refused") if place.refused else (logging.ERROR, "failed")
            logger.log(level, "%s %s %d times more, last with %s", self._service, what, place.untold, place.said)


def describe(failure: Failed) -> str:
    """Describe a failure with its place: "ValueError: no such move (/home/me/worker.py:12)"."""
    message = " ".join(failure.message.split())[:LONGEST]
    place = users_line(failure.error)
    return f"{failure.kind}{f': {message}' if message else ''}{f' ({place})' if place else ''}"
