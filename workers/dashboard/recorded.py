"""Recorded matches of a run, listed and played again move by move; modules for that are loaded on first use."""

from __future__ import annotations

import contextlib
import io
import tempfile
from collections import OrderedDict
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from warren.errors import ConfigurationError, UnknownName
from workers.dashboard.boards import board_of
from workers.dashboard.catalogue import Run
from workers.replays import folder as records
from workers.replays.match_record import RecordedMatch

if TYPE_CHECKING:
    from workers.replays.drawn import Pictures
    from workers.replays.recorded_run import RecordedRun

LISTED = 200  # matches of a pair, the newest ones
LOADED = 2  # runs
FILES = 64  # files of records whose lists are kept
FRAMES = 300  # frames of a film, at most

Game = tuple[Path, str, int]  # a run's folder, a match, a game of it, from 1


class Recorded:
    """The recorded matches of the runs that were asked for last."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._runs: OrderedDict[Path, RecordedRun] = OrderedDict()
        self._files: dict[Path, tuple[int, list[dict[str, Any]]]] = {}
        self._record: tuple[Path, RecordedMatch] | None = None  # the one asked for last, and its run's folder
        self._drawn: tuple[Game, Pictures | None] | None = None  # None: that game draws nothing

    @staticmethod
    def count(run: Run) -> int:
        """Return how many files of records a run has; 0: it recorded nothing."""
        return len(records.files(run.folder / records.FOLDER))

    def matches(self, run: Run, home: str | None = None, away: str | None = None) -> list[dict[str, Any]]:
        """Return the newest recorded matches, the newest first; if a pair is given, its own, in either order."""
        found: dict[str, dict[str, Any]] = {}
        with self._lock:
            for path in records.files(run.folder / records.FOLDER):
                with contextlib.suppress(FileNotFoundError):  # the run deletes its oldest files meanwhile
                    for row in self._summaries(path):
                        if home is None or away is None or {row["home"], row["away"]} == {home, away}:
                            found.setdefault(row["match"], row)
        return list(found.values())[: -LISTED - 1 : -1]

    def _summaries(self, path: Path) -> list[dict[str, Any]]:
        """Return a row for each match in a file, which is read again only when its length has changed."""
        size = path.stat().st_size
        known = self._files.get(path)
        if known is None or known[0] != size:
            rows = [_summary(RecordedMatch.from_bytes(entry)) for entry in records.entries(path.read_bytes())]
            known = self._files[path] = size, rows
            while len(self._files) > FILES:
                self._files.pop(next(iter(self._files)))
        return known[1]

    def game(self, run: Run, match: str, number: int) -> dict[str, Any]:
        """Return one game of a match, from 1, with the board before each move. Raises UnknownName, ReplayError.

        `drawn`: the game draws itself, so that `picture` and `film` have something to show.
        """
        from workers.replays.rebuild import moves

        with self._lock:
            of_run, record = self._of_match(run, match, number)
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
            drawn = self._pictures(run, match, number) is not None
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
            "drawn": drawn,
        }

    def picture(self, run: Run, match: str, number: int, move: int) -> bytes:
        """Return a PNG of a game before move `move` from 0, or at its end. Raises UnknownName, ConfigurationError."""
        from PIL import Image

        with self._lock:
            pictures = self._pictures(run, match, number)
            if pictures is None:
                raise ConfigurationError(f"the game of {run.name} draws no pictures; it is shown as text")
            written = io.BytesIO()
            Image.fromarray(pictures.at(move)).save(written, "PNG", compress_level=1)
        return written.getvalue()

    def film(self, run: Run, match: str, number: int) -> bytes:
        """Return a game as an animated GIF of at most FRAMES frames. Raises UnknownName, ConfigurationError."""
        from workers.replays.command import filmed

        with self._lock, tempfile.TemporaryDirectory() as folder:
            of_run, record = self._of_match(run, match, number)
            return filmed(of_run, record, number - 1, Path(folder) / "game.gif", FRAMES).path.read_bytes()

    def _pictures(self, run: Run, match: str, number: int) -> Pictures | None:
        from workers.replays.drawn import Pictures, draw_unseen

        game = run.folder, match, number
        if self._drawn is None or self._drawn[0] != game:
            if self._drawn is not None and self._drawn[1] is not None:
                self._drawn[1].close()
            self._drawn = None
            draw_unseen()
            pictures = Pictures(*self._of_match(run, match, number), number - 1)
            try:
                pictures.at(0)
                self._drawn = game, pictures
            except (ConfigurationError, ImportError):
                pictures.close()
                self._drawn = game, None
        return self._drawn[1]

    def _of_match(self, run: Run, match: str, number: int) -> tuple[RecordedRun, RecordedMatch]:
        """Return (the recorded run, the match). Raises UnknownName, also for a game that the match does not have."""
        of_run = self._of(run)
        if self._record is None or (self._record[0], self._record[1].match) != (run.folder, match):
            self._record = run.folder, of_run.match(match)
        record = self._record[1]
        if not 1 <= number <= len(record.games):
            raise UnknownName("game", str(number), map(str, range(1, len(record.games) + 1)), f"of match {match}")
        return of_run, record

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
