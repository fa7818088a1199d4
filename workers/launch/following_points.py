"""The points that a run appends to its files, each once, in the order of each file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from workers.learning.metrics import EVALUATIONS, METRICS

Point = dict[str, Any]


class Points:
    """New lines of a run folder's metrics and evaluations, and of the metrics of a league's players.

    Those written before `since`, Unix time in s, are left out: they are of an earlier part of a resumed run.
    """

    def __init__(self, folder: Path, since: float) -> None:
        self.folder, self._since = folder, since
        self._read: dict[Path, int] = {}  # bytes of each file

    def new(self) -> Iterator[tuple[str, Point]]:
        """Yield (METRICS or EVALUATIONS, point) of each line completed since the last call; a player's has "player"."""
        for kind, path, player in self._files():
            for line in self._lines(path):
                point = {**json.loads(line), **player}
                if point["time"] >= self._since:
                    yield kind, point

    def _files(self) -> Iterator[tuple[str, Path, Point]]:
        for kind in (METRICS, EVALUATIONS):
            if (path := self.folder / f"{kind}.jsonl").exists():
                yield kind, path, {}
        for path in sorted(self.folder.glob(f"players/*/{METRICS}.jsonl")):
            yield METRICS, path, {"player": path.parent.name}

    def _lines(self, path: Path) -> Iterator[bytes]:
        with path.open("rb") as file:
            # A learner that resumes cuts off the points of lost updates.
            begin = min(self._read.get(path, 0), file.seek(0, 2))
            file.seek(max(begin - 1, 0))
            if begin and file.read(1) != b"\n":  # it has appended others since, which may be longer
                file.seek(0)
                begin = file.read(begin).rfind(b"\n") + 1
            self._read[path] = file.seek(begin)
            for line in file.read().splitlines(keepends=True):
                if line.endswith(b"\n"):
                    self._read[path] += len(line)
                    yield line
