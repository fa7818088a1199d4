"""Why a process failed, read from what it printed: the exception's last line, and where in the user's code it arose."""

from __future__ import annotations

import re
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from workers.servers.process import READ

_ERROR = re.compile(
    r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Warning|Failure|Name|Action|Finite)\b.*"
)
_REMOTE = "RemoteFailure: "  # its message ends with the traceback of the worker that served the call
_SAID = re.compile(r".*\b(?:training cannot go on|error): (.+)")
_FRAME = re.compile(r'\s+File "([^"]+)", line (\d+), in (\S+)')
_OURS = Path(__file__).resolve().parents[3]
_PACKAGES = ("tasks", "workers", "league", "agents", "envs", "warren")
_INSTALLED = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
# What a server that is away, or slow, makes of a process says nothing about the next try.
_PASSING = re.compile(
    r"(Connection|Timeout|TimedOut|Broker|Operational|Redis|Wire|BusyLoading|Locked|League|Nobody|Deadline|Lost)"
)


@dataclass(frozen=True)
class Failure:
    """The last exception of a log. `where`: file and line of the innermost code that is neither Warren's nor a
    library's; "" where there is none."""

    error: str
    where: str = ""

    def __str__(self) -> str:
        return f"{self.error} ({self.where})" if self.where else self.error

    @property
    def passing(self) -> bool:
        """Whether the servers or other processes may be the cause, so that another try may well succeed."""
        return _PASSING.search(self.error.partition(":")[0]) is not None


def failure_in(text: str) -> Failure | None:
    """The last exception in what a process printed."""
    frames: list[str] = []
    found: Failure | None = None
    in_traceback = False
    remote = ""  # what a service that was called failed with; the traceback there follows
    for line in text.splitlines():
        if line.startswith("Traceback (most recent call last)"):
            frames, in_traceback = frames if remote else [], True
        elif match := _FRAME.fullmatch(line):
            if _is_users(match[1]):
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
    """The newest exception in the user's own code among these logs, and which log has it."""
    for log in sorted((log for log in logs if log.exists()), key=lambda log: log.stat().st_mtime, reverse=True):
        failure = failure_in(tail(log))
        if failure is not None and failure.where:
            return log, failure
    return None


def tail(log: Path) -> str:
    """The end of a log."""
    with log.open("rb") as stream:
        stream.seek(max(0, stream.seek(0, 2) - READ))
        return stream.read().decode(errors="replace")


def _is_users(file: str) -> bool:
    if file.startswith("<") or file.startswith(_INSTALLED) or "site-packages" in file:
        return False
    path = Path(file)
    return not any(path.is_relative_to(_OURS / package) for package in _PACKAGES)
