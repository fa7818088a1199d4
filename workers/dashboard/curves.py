"""Figures that a run's processes write as lines of JSON; long files are read in part, and long curves thinned."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from league.empirical_game.least_exploitable import members_gain

POINTS = 500  # points of a curve
READ = 2000  # lines read from a file; from a longer one, evenly spread
TAIL = 1 << 16  # bytes read at the end of a file; no line has as many
LINE = 900  # bytes of a line, about


def rows(path: Path, most: int = READ) -> list[dict[str, Any]]:
    """Return lines of a file, oldest first, about `most` of them evenly spread; [] where it is missing."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(0)
            if size <= most * LINE:
                lines: Iterable[bytes] = file.readlines()
            else:
                lines = _spread(file, size, most)
            return [found for line in lines if (found := _object(line)) is not None]
    except OSError:
        return []


def last(path: Path) -> dict[str, Any] | None:
    """Return the last whole line of a file; None before there is one."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - TAIL))
            whole = file.read().rpartition(b"\n")[0]
    except OSError:
        return None
    return _object(whole.rpartition(b"\n")[2] + b"\n") if whole else None


def _spread(file: Any, size: int, most: int) -> list[bytes]:
    """Return whole lines at places that are evenly spread, and the last ones."""
    lines = [file.readline()]
    for number in range(1, most):
        file.seek(max(file.tell(), number * size // most))
        file.readline()  # the rest of a line
        lines.append(file.readline())
    return lines


def _object(line: bytes) -> dict[str, Any] | None:
    if not line.endswith(b"\n"):
        return None  # it is being written
    try:
        found = json.loads(line, parse_constant=lambda _: None)  # browsers refuse NaN and Infinity
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def columns(found: Iterable[Mapping[str, Any]], points: int = POINTS) -> dict[str, list[Any]]:
    """Return the rows' numbers as columns, nested ones as "losses.entropy"; None where a row lacks a number."""
    flat = [_flat(row) for row in found]
    if len(flat) > points:
        flat = [flat[place * (len(flat) - 1) // (points - 1)] for place in range(points)]
    names = dict.fromkeys(name for row in flat for name in row)
    return {name: [row.get(name) for row in flat] for name in names}


def _flat(row: Mapping[str, Any], before: str = "") -> dict[str, float]:
    found: dict[str, float] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{before}{name}.")
        elif isinstance(value, int | float) and not isinstance(value, bool) and value == value:
            found[f"{before}{name}"] = value
    return found


def scores(folder: Path) -> list[dict[str, Any]]:
    """Return the evaluator's scores of a league, at most POINTS."""
    found = rows(folder / "evaluation.jsonl")
    if len(found) > POINTS:
        found = [found[place * (len(found) - 1) // (POINTS - 1)] for place in range(POINTS)]
    kept = (
        "time",
        "main_agent",
        "mixture",
        "uniform",
        "references",
        "shares_by_kind",
        "gains",
        "frozen",
        "games",
    )
    return [{**{name: row.get(name) for name in kept}, "gain_within": members_gain(row)} for row in found]


def of_players(folder: Path) -> dict[str, dict[str, list[Any]]]:
    """Return the learners' figures over time, by player; "" is the learner of a plain run."""
    found = {path.parent.name: path for path in sorted(folder.glob("players/*/metrics.jsonl"))}
    if (folder / "metrics.jsonl").exists():
        found[""] = folder / "metrics.jsonl"
    return {name: columns(rows(path)) for name, path in found.items()}
