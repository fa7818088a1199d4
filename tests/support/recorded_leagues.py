"""Leagues in memory whose events are recorded, and written to folders like a league keeper's."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from league.rules.settings import Settings
from league.state.fields import to_json
from league.state.history import History
from league.state.in_memory import MemoryLeague

BEGAN = 1_700_000_000.0
SOON = {"checkpoint_min_steps": 10, "checkpoint_max_steps": 10}


class RecordedLeague:
    """A league in memory whose clock is set by hand; `entries` are its events so far."""

    def __init__(self, seed: int = 0) -> None:
        self.clock, self.number = BEGAN, 0
        self.entries: list[tuple[str, dict[str, str]]] = []
        self.league = MemoryLeague(Settings(), seed, self._happened)

    def _happened(self, event) -> None:  # type: ignore[no-untyped-def]
        self.number += 1
        self.entries.append((f"{round(self.clock * 1000)}-{self.number}", dict(event)))

    def play(self, home: str, outcomes: str, seconds: float = 1.0) -> None:
        """Let `home` play a match of `seconds` s with these outcomes."""
        match = self.league.request(home)
        self.clock += seconds
        self.league.report(match, outcomes)


def small_league(matches: int = 30) -> RecordedLeague:
    """Return a league of two players that learn, their snapshots, a reset, and `matches` matches."""
    recorded = RecordedLeague()
    league = recorded.league
    league.add_player("main", "main_agent")
    league.snapshot("main", 0)
    league.add_player("hunter", "main_exploiter", SOON)
    for number in range(matches):
        recorded.play("hunter" if number % 3 else "main", "wdlw"[: 1 + number % 4])
        if number == matches // 2:
            league.open_period("hunter")
            recorded.clock += 5.0
            league.close_period("hunter", 100, 1)
    return recorded


def write(folder: Path, entries: list[tuple[str, dict[str, str]]], segment: int = 0) -> None:
    """Write a league's folder; `segment`: older events go to segments of this many, each followed by a checkpoint."""
    folder.mkdir(parents=True, exist_ok=True)
    history, lines, first = History(), list[str](), ""

    def add(entry: str, event: dict[str, str]) -> None:
        lines.append(json.dumps({"fields": event, "id": entry}) + "\n")

    for number, (entry, event) in enumerate(entries):
        first = first or entry
        add(entry, event)
        history.take([(entry, event)])
        if segment and number % segment == segment - 1:
            (folder / "history").mkdir(exist_ok=True)
            (folder / "history" / f"{first}.{segment}.jsonl.gz").write_bytes(gzip.compress("".join(lines).encode()))
            lines.clear()
            first = entry
            lines.append(to_json({"id": entry, "fields": history.checkpoint()}) + "\n")
    (folder / "league.jsonl").write_text("".join(lines))
