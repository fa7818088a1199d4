"""Answers of rollout tasks that failed: the error in one line, as an answer like any other.

A task that raised would fail its round's chord, and the learner would get only an id; the reason would stay in a log,
under the chord's own tracebacks. With an answer, the learner can print the reason.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from celery.exceptions import Reject
from celery.utils.log import get_logger

from envs.construct import where
from warren.errors import ConfigurationError, WarrenError

logger = get_logger(__name__)


def answer(round_id: str, stopping: threading.Event, play: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return what `play` returns, or why it failed. Once `stopping` is set, a task that fails returns to its queue."""
    try:
        return {"round": round_id, **play()}
    except Exception as error:
        if stopping.is_set() and isinstance(error, WarrenError):  # it gave up waiting: another actor can play
            raise Reject(str(error), requeue=True) from None
        logger.exception("rollout of round %s failed", round_id)
        return {"round": round_id, "failed": one_line(error), "by_user": isinstance(error, ConfigurationError)}


def one_line(error: BaseException) -> str:
    """Return the error in one line, with the place where it was raised unless it is one of Warren's own messages."""
    message = " ".join(str(error).split())
    return message if isinstance(error, WarrenError) else f"{type(error).__name__}: {message}{where(error)}"
