"""Calls to be tried again after an exception: when, and whether there is time for it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from celery.utils.log import get_logger

from tasks.app.outcome import Again, Failed
from tasks.app.protocol import is_moment, seconds_until
from tasks.middleware import view_of
from tasks.retrying import RetryOn

logger = get_logger(__name__)


def tried_again(
    service: str, retry_on: RetryOn, longest: float, calls: Sequence[Any], outcomes: Sequence[Any]
) -> list[Any]:
    """Return `outcomes`, with Again for those that are to be tried again.

    A call is not tried again if its deadline passes before that, or if it would be held for over `longest` s by then.
    """
    return [
        _of_one(service, retry_on, longest, raw, outcome) if type(outcome) is Failed else outcome
        for raw, outcome in zip(calls, outcomes, strict=True)
    ]


def _of_one(service: str, retry_on: RetryOn, longest: float, raw: Any, outcome: Failed) -> Any:
    view = view_of(service, raw)
    try:
        seconds = retry_on.wait(outcome.error, view.tried)
    except Exception:
        logger.exception("retry_on of %s: its `when` failed, so the call is not tried again", service)
        return outcome
    if seconds is None:
        return outcome
    now = time.monotonic()
    if view.tried == 0:
        view.failed_first = now
    expires = raw.headers.get("expires")
    if now + seconds - view.failed_first > longest or (is_moment(expires) and seconds_until(expires) <= seconds):
        return outcome
    view.tried += 1
    return Again(outcome.error, outcome.kind, outcome.message, outcome.traceback, seconds)
