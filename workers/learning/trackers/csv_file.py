"""A learner's figures as a table: metrics.csv in its folder, a row per update."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from warren.files import append_whole, drop_half_line, write_whole
from workers.config.trackers import Tracked, Tracker

FILE = "metrics.csv"


class CsvFile(Tracker):
    """Appends rows; for a row with new columns the file is written anew."""

    _path: Path
    _columns: list[str]

    def begin(self, tracked: Tracked) -> None:
        """Go on after the row of the last version, if there are rows already."""
        self._path = tracked.folder / FILE
        drop_half_line(self._path)
        rows = [row for row in self._rows() if int(row["version"]) <= tracked.last_version]
        self._write(rows, list(rows[0]) if rows else [])

    def point(self, figures: Mapping[str, Any], losses: Mapping[str, float]) -> None:
        """Append a row."""
        row = {**figures, **{f"loss/{name}": value for name, value in losses.items()}}
        if new := [name for name in row if name not in self._columns]:
            self._write([*self._rows(), row], [*self._columns, *new])
            return
        with self._path.open("ab", buffering=0) as file:
            append_whole(file, _text([row], self._columns))

    def _rows(self) -> list[dict[str, Any]]:
        if not self._path.exists():
            return []
        with self._path.open(newline="") as file:
            return list(csv.DictReader(file))

    def _write(self, rows: list[dict[str, Any]], columns: list[str]) -> None:
        if columns:
            head = (",".join(columns) + "\r\n").encode()
            write_whole(self._path, head + _text(rows, columns))
        else:
            self._path.unlink(missing_ok=True)
        self._columns = columns  # only now: a full disk leaves the file as it was


def _text(rows: list[dict[str, Any]], columns: list[str]) -> bytes:
    text = io.StringIO()
    csv.DictWriter(text, columns, restval="").writerows(rows)
    return text.getvalue().encode()
