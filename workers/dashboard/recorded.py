"""Recorded matches of a run, listed and played again move by move; what that needs is loaded when it is first asked."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from warren.errors import UnknownName
from workers.dashboard.boards import board_of
from workers.dashboard.catalogue import Run
from workers.replays import folder as records
from workers.replays.match_record import RecordedMatch

if TYPE_CHECKING:
    from workers.replays.recorded_run import RecordedRun

LISTED = 200  # matches of a pair, the newest ones
LOADED = 2  # runs
FILES = 64  # of records, whose lists are kept


class Recorded:
    """The recorded matches of runs, of those asked for last."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._runs: OrderedDict[Path, RecordedRun] = OrderedDict()
        self._files: dict[Path, tuple[int, list[dict[str, Any]]]] = {}

    @staticmethod
    def count(run: Run) -> int:
        """Return how many files of records a run has; 0: it recorded nothing."""
        return len(records.files(run.folder / records.FOLDER))

    def matches(self, run: Run, home: str | None = None, away: str | None = None) -> list[dict[str, Any]]:
        """Return the newest recorded matches, of a pair in either order if it is given, the newest first."""
        found: dict[str, dict[str, Any]] = {}
        with self._lock:
            for path in records.files(run.folder / records.FOLDER):
                with contextlib.suppress(FileNotFoundError):  # the oldest go meanwhile
                    for row in self._summaries(path):
                        if home is None or away is None or {row["home"], row["away"]} == {home, away}:
                            found.setdefault(row["match"], row)
        return list(found.values())[: -LISTED - 1 : -1]

    def _summaries(self, path: Path) -> list[dict[str, Any]]:
        """Return a row for each match in a file, which is read once for each length that it has."""
        size = path.stat().st_size
        known = self._files.get(path)
        if known is None or known[0] != size:
            rows = [_summary(RecordedMatch.from_bytes(entry)) for entry in records.entries(path.read_bytes())]
            known = self._files[path] = size, rows
            while len(self._files) > FILES:
                self._files.pop(next(iter(self._files)))
        return known[1]

    def game(self, run: Run, match: str, number: int) -> dict[str, Any]:
        """Return one game of a match, from 1, with the board before each move. Raises UnknownName, ReplayError."""
        from workers.replays.rebuild import moves

        with self._lock:
            of_run = self._of(run)
            record = of_run.match(match)
            if not 1 <= number <= len(record.games):
                raise UnknownName("game", str(number), map(str, range(1, len(record.games) + 1)), f"of match {match}")
            played, env = record.games[number - 1], of_run.games()
            try:
                steps = []
                for move in moves(env, played):
                    seat = int(move.turn.to_move[0])
                    weights = record.weights(played, seat, move.number)
                    steps.append(
                        {
                            "seat": seat,
                            "player": f"{weights.player}@{weights.version}",
                            "action": env.action_text(0, move.action),
                            "legal": [env.action_text(0, int(one)) for one in np.flatnonzero(move.turn.action_mask[0])],
                            **board_of(env.text(0)),
                        }
                    )
                end = board_of(env.last_text(0))
            finally:
                env.close()
        return {
            "match": record.match,
            "home": record.home,
            "away": record.away,
            "time": record.ended_at,
            "game": number,
            "games": len(record.games),
            "home_seat": played.home,
            "returns": [float(one) for one in played.returns],
            "moves": steps,
            "end": end,
        }

    def _of(self, run: Run) -> RecordedRun:
        from workers.replays.recorded_run import RecordedRun

        if run.folder not in self._runs:
            self._runs[run.folder] = RecordedRun(run.folder)
            while len(self._runs) > LOADED:
                self._runs.popitem(last=False)
        self._runs.move_to_end(run.folder)
        return self._runs[run.folder]


def _summary(record: RecordedMatch) -> dict[str, Any]:
    return {
        "match": record.match,
        "home": record.home,
        "away": record.away,
        "games": len(record.games),
        "mean_return": float(record.returns.mean()) if record.games else None,
        "recorded as": ", ".join(record.rules),
        "time": record.ended_at,
    }
