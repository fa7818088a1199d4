"""Outcomes of a call: its result, or an instance of a class here, made from what was raised.

A result is any value but an `Outcome`. Texts of an Outcome can always be encoded, whatever the error's methods do.
"""

from __future__ import annotations

import traceback as tracebacks
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from celery.exceptions import (
    Ignore,
    Reject,
    Retry,
    SoftTimeLimitExceeded,
    TaskRevokedError,
    Terminated,
    WorkerLostError,
)

from warren.errors import TimeLimitExceeded

CELERYS = {"billiard.exceptions.SoftTimeLimitExceeded": "warren.errors.TimeLimitExceeded"}  # kinds; see for_celery
ENDS_WORKER = (SystemExit, KeyboardInterrupt)  # raised by a service, these end its worker
LONGEST = 100_000  # characters of an error's message, and of its traceback

EXPIRED, REVOKED = "expired", "revoked"


@dataclass(frozen=True)
class Outcome:
    """Base of all outcomes that are not results. `error`: what was raised; `kind`: its class's name."""

    error: BaseException
    kind: str
    message: str
    traceback: str = ""


class Failed(Outcome):
    """The call raised an exception."""


class Dropped(Outcome):
    """Nobody needs the call any more, or it says so itself (Celery's Ignore and Retry): it is acknowledged."""


class Requeue(Outcome):
    """The call goes back to its queue: Celery's Reject(requeue=True)."""


class DeadLetter(Outcome):
    """The call's message goes to the dead letters: Celery's Reject."""


@dataclass(frozen=True)
class Again(Failed):
    """The call raised an exception, and its service wants it tried again after `seconds`."""

    seconds: float = 0.0


class NotYet(Outcome):
    """The call has not run, since Redis or the broker is away: it is run a little later."""


def outcome_of(error: BaseException) -> Outcome:
    """Turn what a call raised into its outcome. Raises `error` itself where that ends the worker."""
    if isinstance(error, ENDS_WORKER):
        raise error
    if isinstance(error, Reject):
        kind = Requeue if error.requeue else DeadLetter
        return kind(error, kind_of(error), f"the call was rejected: {text_of(error.reason)}")
    if isinstance(error, Ignore):
        return Dropped(error, kind_of(error), "the call was ignored")
    if isinstance(error, Retry):
        return Dropped(error, kind_of(error), f"the call is to be tried again: {text_of(error)}")
    return failed(error)


def outcome_of_service(error: BaseException) -> Outcome:
    """Turn what a service raised into its outcome: Retry is a failure, since nobody has sent the call again."""
    if not isinstance(error, Retry):
        return outcome_of(error)
    why = "Celery's Retry sends nothing again here; @service(retry_on=...) says what is tried again"
    found = failed(error)
    return Failed(error, found.kind, f"{found.message} ({why})", found.traceback)


def failed(error: BaseException) -> Failed:
    """Return `error` as a failure, with its text and traceback."""
    text = text_of(error, lambda one: "".join(tracebacks.format_exception(one)))
    return Failed(error, kind_of(error), text_of(error), text)


def dropped(why: str) -> Dropped:
    """Return the outcome of a call that its worker does not run: it has EXPIRED, was REVOKED, or `why` else."""
    error = TaskRevokedError(why)
    return Dropped(error, kind_of(error), f"the call was dropped: {why}")


def has_run() -> Dropped:
    """Return the outcome of a call that has run already, with an outcome of its own, and must not run twice."""
    error = Ignore("it has run already")
    return Dropped(error, kind_of(error), "the call has run already")


def not_yet(error: BaseException) -> NotYet:
    """Return the outcome of a call that cannot run while `error` lasts."""
    return NotYet(error, kind_of(error), text_of(error))


def kind_of(error: Any) -> str:
    """Return the name of the class of `error`, or of any value, with its module unless that is builtins."""
    cls = type(error)
    return text_of(cls, lambda one: one.__qualname__ if one.__module__ == "builtins" else _full_name(one))


def _full_name(cls: Any) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def text_of(value: Any, form: Callable[[Any], str] = str) -> str:
    """Return `form(value)` as a text of bounded length that can be encoded, whatever the value's methods do."""
    try:
        text = form(value).encode("utf-8", "backslashreplace").decode()
    except BaseException as error:
        return f"<{type(value).__name__!a} cannot be shown: {type(error).__name__!a}>"
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]} ... {text[-LONGEST // 2 :]}"


def for_celery(outcome: Outcome) -> Exception:
    """Return an error that Celery can store: an Exception, with a text that can be encoded.

    A failure must also not be an error that Celery takes for its worker's end, or for a call that is sent again.
    """
    error = outcome.error
    if isinstance(error, TimeLimitExceeded):
        limit: Exception = SoftTimeLimitExceeded(outcome.message)  # the error that its clients know
        return limit
    if isinstance(error, Exception) and (not isinstance(outcome, Failed) or _is_plain(error)):
        return error
    return RuntimeError(f"{outcome.kind}: {outcome.message}")


def _is_plain(error: Exception) -> bool:
    if isinstance(error, MemoryError | WorkerLostError | Terminated | Retry):
        return False
    try:
        "".join(tracebacks.format_exception(error)).encode()
        str(error).encode()
        repr(error).encode()
    except BaseException:
        return False
    return True
