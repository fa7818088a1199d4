"""The system's refusal of one more process or thread, as one message."""

from __future__ import annotations

import errno
import traceback

NO_THREAD = "can't start new thread"  # Python's words
TOO_MANY = (
    "the system lets this user start no more processes or threads; raise ulimit -u, or the container's pids limit "
    "(docker run --pids-limit)"
)


def told_too_many(error: BaseException) -> str:
    """Return the message for an error of a fork or of a thread's start that the system refused; "" for any other."""
    if isinstance(error, RuntimeError):
        return TOO_MANY if str(error) == NO_THREAD else ""
    refused = isinstance(error, OSError) and error.errno == errno.EAGAIN and _of_a_fork(error)
    return TOO_MANY if refused else ""


def _of_a_fork(error: OSError) -> bool:
    """Return whether the error is that of a fork, and not of a socket that would block."""
    *_, last = traceback.extract_tb(error.__traceback__)
    return "fork" in f"{last.name} {last.line}"
