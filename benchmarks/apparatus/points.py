"""Parts of a benchmark that end in time, and go on when the command is given again."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class Points:
    """Figures by the value that was varied, kept in FOLDER/NAME.jsonl, a line per point, if there is a folder.

    Keys have JSON's types. Two benchmarks that differ in anything but their keys need files of their own.
    """

    def __init__(self, folder: Path | None, name: str) -> None:
        self._path = folder and folder / f"{name}.jsonl"
        self._found: dict[str, Any] = {}
        if self._path is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if self._path.exists():
            for line in self._path.read_text().splitlines():
                point = json.loads(line)
                self._found[_text(point["key"])] = point["value"]
            print(f"{len(self._found)} points are in {self._path}", flush=True)

    def get(self, **key: Any) -> Any:
        """Return the point; None if it was not measured."""
        return self._found.get(_text(key))

    def add(self, value: Any, **key: Any) -> Any:
        """Keep a point; return it as JSON reads it."""
        line = json.dumps({"key": key, "value": value})
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(f"{line}\n")
        self._found[_text(key)] = json.loads(line)["value"]
        return self._found[_text(key)]


class TimeLeft:
    """The seconds that a part may take, and how long its points took."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._until, self._longest = seconds, time.monotonic() + seconds, 0.0

    @property
    def left(self) -> float:
        """s until the end."""
        return self._until - time.monotonic()

    def fits(self, what: str) -> bool:
        """Return True if a point as long as the longest so far would end in time; else print that it is left out."""
        if self.left > self._longest:
            return True
        print(
            f"{what} would not end within --seconds {self._seconds:g}: with --folder, the same command goes on",
            flush=True,
        )
        return False

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Record the time of one point."""
        began = time.monotonic()
        yield
        self._longest = max(self._longest, time.monotonic() - began)


def _text(key: dict[str, Any]) -> str:
    return json.dumps(key, sort_keys=True)
