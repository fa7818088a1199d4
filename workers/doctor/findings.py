"""Findings: one line per check, with its remedy, as a table or as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

from rich.console import Console
from rich.segment import Segment, SegmentLines
from rich.table import Table

WOULD_NOT_WORK = 2  # exit status
CHECK_WIDTH, LEVEL_WIDTH = 16, 8  # characters of the table's first columns, in which nearly all names fit


class Level(StrEnum):
    """Severity of a finding. `error`: a run would not work, or would lose data; `unseen`: could not be checked."""

    ok = "ok"
    warning = "warning"
    error = "error"
    unseen = "not seen"


STYLES = {Level.ok: "green", Level.warning: "yellow", Level.error: "red", Level.unseen: "dim"}


@dataclass(frozen=True)
class Finding:
    """The result of a check. `remedy`: empty if all is well; for `unseen`, what the check needs."""

    check: str
    level: Level
    found: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.level}: {self.check}: {self.found}{f'; {self.remedy}' if self.remedy else ''}"


def status_of(findings: Iterable[Finding]) -> int:
    """Return the exit status: 0 if a run would work, with or without warnings; 2 if not."""
    return WOULD_NOT_WORK if any(one.level is Level.error for one in findings) else 0


class Rows:
    """The table of findings on a console, printed row by row."""

    def __init__(self, console: Console) -> None:
        self._console, self._options = console, console.options
        self._findings: list[Finding] = []
        self._printed = 0  # lines

    def add(self, one: Finding) -> None:
        """Print the row of the next finding, after the first with the table's head."""
        self._findings.append(one)
        self._print(self._lines()[:-1])

    def end(self) -> None:
        """Print the table's last line."""
        self._print(self._lines())

    def _lines(self) -> list[list[Segment]]:
        return self._console.render_lines(table(self._findings), self._options, pad=False)

    def _print(self, lines: list[list[Segment]]) -> None:
        self._console.print(SegmentLines(lines[self._printed :], new_lines=True))
        self._printed = len(lines)


def table(findings: Sequence[Finding]) -> Table:
    """Return the findings as a table, in the order of the checks. Its first lines stay when findings are added."""
    drawn = Table(expand=True)
    drawn.add_column("check", width=CHECK_WIDTH)
    drawn.add_column("", width=LEVEL_WIDTH)
    drawn.add_column("found", ratio=1, overflow="fold")
    drawn.add_column("remedy", ratio=1, overflow="fold")
    for one in findings:
        drawn.add_row(one.check, f"[{STYLES[one.level]}]{one.level}[/]", _plain(one.found), _plain(one.remedy))
    return drawn


def summary(findings: Sequence[Finding]) -> str:
    """Return the last line: the outcome and the numbers of findings by level."""
    errors, warnings, unseen = (
        sum(one.level is level for one in findings) for level in (Level.error, Level.warning, Level.unseen)
    )
    outcome = "a run would not work" if errors else "a run would work"
    return f"{outcome}: {errors} errors, {warnings} warnings, {unseen} not seen, of {len(findings)} checks"


def as_json(findings: Sequence[Finding]) -> str:
    """Return the findings as JSON."""
    works = status_of(findings) == 0
    return json.dumps({"works": works, "findings": [asdict(one) for one in findings]}, indent=2)


def _plain(text: str) -> str:
    return text.replace("[", r"\[")  # rich reads [...] as a style
