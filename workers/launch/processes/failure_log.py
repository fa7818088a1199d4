"""The file of a run's folder that keeps the cause of every restart and failure, also after the run has ended.

failures.jsonl holds one JSON object per line, the oldest first, and is only ever appended to. At LONGEST bytes it is
put aside as failures.jsonl.1, in the place of the one before. Each host's launcher writes into its own folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from warren.files import append_whole, drop_half_line
from workers.servers.checks import redact

FILE = "failures.jsonl"
LONGEST = 16 << 20  # bytes
LONGEST_TEXT = 4_000  # characters


@dataclass(frozen=True)
class Entry:
    """One failure. `name`: of the process or server; "run" for the run itself. `then`: what became of it.

    `status`: exit status, 128 + n after signal n, None if it is not a process. `where`: "file:line" of the user's code
    that raised, "" if none did. `lived`: s since its start. `said`: its last lines.
    """

    name: str
    cause: str
    then: str
    status: int | None = None
    where: str = ""
    lived: float | None = None
    said: str = ""


class FailureLog:
    """Appends failures to the file in `folder`; `say` reports if they cannot be written, once in a row."""

    def __init__(self, folder: Path, say: Callable[[str], object]) -> None:
        self._path, self._say, self._failing = folder / FILE, say, False
        self._whole = False  # the file is known to end with a whole line

    def add(self, entry: Entry) -> None:
        """Write a failure to the disk; a full disk does not end the run."""
        texts = {name: _cut(value) if isinstance(value, str) else value for name, value in asdict(entry).items()}
        line = json.dumps({"time": time.time(), "host": socket.gethostname(), **texts}) + "\n"
        try:
            self._append(line.encode())
            self._failing = False
        except OSError as error:
            if not self._failing:
                self._say(f"warning: {self._path}: failures are not kept: {error}")
            self._failing = True

    def _append(self, line: bytes) -> None:
        if not self._whole:
            drop_half_line(self._path)
            self._whole = True
        if self._path.exists() and self._path.stat().st_size + len(line) > LONGEST:
            self._path.replace(_older(self._path))
        with self._path.open("ab", buffering=0) as file:
            append_whole(file, line)
            os.fsync(file.fileno())


def read(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the failures kept in a run's folder, the oldest first; damaged lines are left out."""
    for path in (_older(folder / FILE), folder / FILE):
        with contextlib.suppress(FileNotFoundError), path.open("rb") as lines:
            for line in lines:
                with contextlib.suppress(ValueError):
                    found = json.loads(line)
                    if isinstance(found, dict):
                        yield found


def _older(path: Path) -> Path:
    return path.with_name(f"{path.name}.1")


def _cut(text: str) -> str:
    told = redact(text)
    return told if len(told) <= LONGEST_TEXT else f"{told[:LONGEST_TEXT]}..."
