"""A league's stream on disk: its newest events behind a checkpoint, and compressed segments of those before.

    FOLDER/league.jsonl                         one event a line; the first stands for all earlier ones (a checkpoint)
    FOLDER/history/FIRST.EVENTS.jsonl.gz        older events, each segment behind its own checkpoint
    FOLDER/lost/FIRST.jsonl                     events that Redis lost in a crash after they were saved

So a restore reads one segment, however long the league is, and any segment can be replayed by itself. Only the newest
segments are kept, up to `kept` events in all.
"""

from __future__ import annotations

import gzip
import logging
import os
from bisect import bisect_left
from collections.abc import Iterable
from pathlib import Path

from league.redis.store import Store
from league.state.fields import event_order, to_json
from league.state.history import History
from league.state.league_state import Event, LeagueState
from league.state.replay import HISTORY, STREAM, read_file, segments
from warren.errors import LeagueError
from warren.files import write_whole

logger = logging.getLogger(__name__)

SEGMENT = 100_000  # least number of events of a segment; it also has at least as many bytes as its checkpoint
KEPT = 2_000_000  # events in segments, some 80 MB: at 12,000 events a second those of three minutes
LOST = "lost"


class SavedStream:
    """The stream in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / STREAM
        self._history: History | None = None  # the file's content, once read
        self._events = self._checkpoint_bytes = self._bytes = 0
        self._newest: Event | None = None  # the newest event that was read or appended

    def read(self) -> History:
        """Return the league that the file holds, folded; cut off an incomplete last line that a crash left."""
        if self._history is None:
            history = History()
            self._events = self._checkpoint_bytes = 0
            if self.path.exists():
                _cut_incomplete_line(self.path)
                self._take(history, read_file(self.path))
            self._bytes = self.path.stat().st_size if self.path.exists() else 0
            self._history = history
        return self._history

    @property
    def events(self) -> int:
        """Number of events in the file without its checkpoint; 0 before the file was read."""
        return self._events

    def follow(self, store: Store, until: str) -> None:
        """Append the events of `store` up to `until` that the file lacks.

        Raises LeagueError, and writes nothing, if `store` holds another league than the file, or less of it.
        """
        self.check(store)
        history = self.read()
        try:
            with self.path.open("a", encoding="utf-8") as lines:
                for entry, event in store.events(after=history.last_event, until=until):
                    self._take(history, [(entry, event)])
                    self._bytes += lines.write(to_json({"id": entry, "fields": event}) + "\n")
                lines.flush()
                os.fsync(lines.fileno())
        except BaseException:
            self._history = None  # the file may hold less than was folded: read it again
            raise

    def rotate(self, store: Store, kept: int | None, segment: int) -> bool:
        """Close a file of `segment` events, and trim the stream in Redis to begin where the new file does.

        `kept` is the number of events in segments, None for all. Only the run's own keeper may call it: the trimmed
        events are saved in its folder alone.
        """
        history = self.read()
        if self._events < segment or self._bytes < 2 * self._checkpoint_bytes:
            return False
        checkpoint, last = history.checkpoint(), history.last_event
        self._archive()
        first = _lines([(last, checkpoint)])
        write_whole(self.path, first)
        self._events, self._bytes, self._checkpoint_bytes = 0, len(first), len(first)
        self._drop_oldest(kept)
        store.trim(last, checkpoint)
        return True

    def _take(self, history: History, entries: Iterable[tuple[str, Event]]) -> None:
        for entry, event in entries:
            history.take([(entry, event)])
            self._newest = event
            if event["event"] == "checkpoint":
                self._checkpoint_bytes = len(event["league"]) + len(event["history"])
            else:
                self._events += 1

    # Segments.

    def _archive(self) -> None:
        folder = self.folder / HISTORY
        folder.mkdir(exist_ok=True)
        first = next(iter(read_file(self.path)))[0]
        stale = list(folder.glob(f"{first}.*"))  # left by a rotation that a crash cut short
        write_whole(folder / f"{first}.{self._events}.jsonl.gz", gzip.compress(self.path.read_bytes(), 3))
        for path in stale:
            if path.name != f"{first}.{self._events}.jsonl.gz":
                path.unlink()

    def _drop_oldest(self, kept: int | None) -> None:
        if kept is None:
            return
        events = 0
        for path in reversed(segments(self.folder)):
            events += int(path.name.split(".")[1])
            if events > kept:
                path.unlink()

    # Checks that the file and `store` hold the same league, and that `store` lacks nothing.

    def check(self, store: Store) -> None:
        """Raise LeagueError if the league of `store` is not the one in the file; see `follow`."""
        history = self.read()
        last = history.last_event
        if last == "0" or store.holds(last, self._newest):
            return
        base = store.checkpoint()
        if base is not None and event_order(last) < event_order(base[0]):
            self._skip(history, *base)
            return
        self._set_back(store, "0" if base is None else base[0])

    def _skip(self, history: History, entry: str, checkpoint: Event) -> None:
        """Go on from `checkpoint`: the events before it are saved elsewhere, by the keeper that trimmed the stream."""
        later = LeagueState()
        later.apply(checkpoint)
        players = list(history.state.players)
        if list(later.players)[: len(players)] != players or later.settings != history.state.settings:
            raise LeagueError(self._mismatch_message())
        self._archive()
        write_whole(self.path, _lines([(entry, checkpoint)]))
        self._history = None

    def _set_back(self, store: Store, base: str) -> None:
        """Move saved events that Redis lost in a crash out of the way, and continue from what Redis holds."""
        entries = list(read_file(self.path))
        place = bisect_left(
            entries, True, key=lambda one: event_order(one[0]) > event_order(base) and not store.holds(*one)
        )
        if place == 0 or not store.holds(*entries[place - 1]):
            raise LeagueError(self._mismatch_message())
        kept, lost = entries[:place], entries[place:]
        path = self.folder / LOST / f"{lost[0][0]}.jsonl"
        path.parent.mkdir(exist_ok=True)
        write_whole(path, _lines(lost))
        write_whole(self.path, _lines(kept))
        self._history = None
        logger.warning("Redis has lost the last %d events that %s held; they are in %s", len(lost), self.path, path)

    def _mismatch_message(self) -> str:
        return (
            f"the league in Redis is not the one saved in {self.folder}, or less of it (it lacks event "
            f"{self.read().last_event}); nothing is written over it. Wipe the one in Redis, or save to another folder"
        )


def holds_league(folder: Path) -> bool:
    """Return True if the stream of `folder` holds an event; a file that a crash left empty holds no league."""
    path = folder / STREAM
    return path.exists() and next(read_file(path), None) is not None


def _lines(entries: list[tuple[str, Event]]) -> bytes:
    return "".join(to_json({"id": entry, "fields": event}) + "\n" for entry, event in entries).encode()


def _cut_incomplete_line(path: Path) -> None:
    """Cut off an incomplete last line that a crash left."""
    with path.open("rb+") as file:
        content = file.read()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            file.truncate(whole)
