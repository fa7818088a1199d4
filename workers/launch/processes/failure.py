"""The failure of a process, read from its log: the exception's last line, and its place in the user's code."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from warren.log_fields import as_text
from warren.user_code import is_users
from workers.servers.process import READ

_ERROR = re.compile(
    r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Warning|Failure|Name|Action|Finite)\b.*"
)
_REMOTE = "RemoteFailure: "  # the message ends with the traceback of the worker that served the call
_SAID = re.compile(r".*\b(?:training cannot go on|error): (.+)")
_COPY = re.compile(r" \(copy \d+ of \d+\)")  # of an environment; chance decides which copy fails first
_FRAME = re.compile(r'\s+File "([^"]+)", line (\d+), in (\S+)')
# Errors from a server that is away or slow: the next try may succeed.
_PASSING = re.compile(
    r"(Connection|Timeout|TimedOut|Broker|Operational|Redis|Wire|BusyLoading|Locked|League|Nobody|Deadline|Lost)"
)


@dataclass(frozen=True)
class Failure:
    """The last exception of a log. `where`: "file:line" of the innermost user code; "" if none ran."""

    error: str
    where: str = ""

    def __str__(self) -> str:
        return f"{self.error} ({self.where})" if self.where else self.error

    @property
    def passing(self) -> bool:
        """Return whether servers or other processes may be the cause, so that another try may succeed."""
        return _PASSING.search(self.error.partition(":")[0]) is not None

    def is_like(self, other: Failure) -> bool:
        """Return whether both are the same failure, in whichever copy of an environment."""
        return self.where == other.where and _COPY.sub("", self.error) == _COPY.sub("", other.error)


def failure_in(text: str) -> Failure | None:
    """Return the last exception in `text`, the output of a process, or None."""
    frames: list[str] = []
    found: Failure | None = None
    in_traceback = False
    remote = ""  # the failure of a called service, whose traceback follows
    for line in as_text(text).splitlines():
        if line.startswith("Traceback (most recent call last)"):
            frames, in_traceback = frames if remote else [], True
        elif match := _FRAME.fullmatch(line):
            if is_users(match[1]):
                frames.append(f"{match[1]}:{match[2]}")
        elif in_traceback and _ERROR.fullmatch(line):
            found, in_traceback = Failure((remote or line)[:400], frames[-1] if frames else ""), False
            remote = "" if remote else line.partition(_REMOTE)[2]
        elif not in_traceback:
            remote = ""
            if (said := _SAID.fullmatch(line)) and (found is None or not found.where):
                found = Failure(said[1][:400])
    return found


def failure_of(logs: Iterable[Path]) -> tuple[Path, Failure] | None:
    """Return (log, failure) of the newest exception in the user's code among these logs, or None."""
    for log in sorted((log for log in logs if log.exists()), key=lambda log: log.stat().st_mtime, reverse=True):
        failure = failure_in(tail(log))
        if failure is not None and failure.where:
            return log, failure
    return None


def tail(log: Path) -> str:
    """Return the last READ bytes of a log as text."""
    with log.open("rb") as stream:
        stream.seek(max(0, stream.seek(0, 2) - READ))
        return stream.read().decode(errors="replace")
