"""A league at any moment, read from the folder that it is saved in and, during the run, from its stream in Redis.

Each file of the folder begins with a checkpoint of all before it, so a moment takes one file's events at most. Marks,
which are copies of the fold every MARK events, make the next look at a nearby moment a matter of milliseconds.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol

from league.state.fields import event_order
from league.state.league_state import Event
from league.state.replay import STREAM, read_file, segments
from warren.errors import LeagueError
from workers.dashboard.fold import Fold

MARK = 10_000  # events between two marks
MARK_BYTES = 24 << 20  # bytes of all marks together; two are kept whatever they take

Position = tuple[int, int]  # an event's ms and number
DECODER = (
    json.JSONDecoder()
)  # for lines that begin with their object: json.loads looks for more, and takes twice as long


class Store(Protocol):
    """The part of league.redis.event_stream.EventStream that is read here."""

    def holds(self, entry: str) -> bool:
        """Return True if the event with this id is still there."""

    def events(self, after: str = "0", until: str = "+") -> Iterator[tuple[str, Event]]:
        """Yield (id, event), oldest first, of the events after `after` and up to `until`."""


class Timeline:
    """The league saved in `folder`; methods may be called by several threads. Raises LeagueError for damaged files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lock = threading.RLock()  # hold it while reading what `now` returned
        self._now = Fold()
        self._place = 0  # bytes of the newest file that have been read
        self._first = b""  # its first line, by which another file of this name is told apart
        self._marks: OrderedDict[Position, Fold] = OrderedDict()
        self._unsaved: list[tuple[str, Event]] = []  # events of Redis that the newest file does not hold
        self._reloads = 0

    @property
    def path(self) -> Path:
        """The file of the newest events."""
        return self.folder / STREAM

    def now(self) -> Fold:
        """Return the league as it is now; it must not be changed, since `follow` continues with the same object."""
        return self._now

    def follow(self, store: Store | None = None) -> bool:
        """Take in new events, from `store` if it is given, else from the file; return True if there were any.

        Raises redis.RedisError; events taken in before that stay.
        """
        with self.lock:
            before, reloads = self._now.history.last_event, self._reloads
            if store is None or before == "0":
                self._follow_file()
            if store is not None:
                self._follow_store(store)
            return self._now.history.last_event != before or self._reloads != reloads

    def at(self, moment: float) -> Fold:
        """Return the league at `moment`, s of Unix time, or at the earliest moment kept; it must not be changed."""
        with self.lock:
            history = self._now.history
            if moment >= history.now:
                return self._now
            until = (int(moment * 1000), 1 << 62)
            found, entries = self._nearest(until)
            for entry, event in entries:
                if event_order(entry) > until and found.history.last_event != "0":
                    break
                found.take([(entry, event)])
                if found.events and found.events % MARK == 0:
                    self._mark(found)
            self._mark(found)
            return found

    # The present.

    def _follow_file(self) -> None:
        """Read the lines that were appended; read all anew if the file is another one, as after a restore."""
        try:
            with self.path.open("rb") as file:
                first = file.readline()
                if first != self._first or self._place > file.seek(0, 2):
                    if self._continues(first):
                        self._place = len(first)
                    else:
                        self._now, self._place = Fold(), 0
                        self._reloads += 1
                    self._marks.clear()
                self._first = first
                file.seek(self._place)
                self._now.take(self._new(file))
        except FileNotFoundError:
            return
        except (ValueError, KeyError, TypeError) as error:
            raise LeagueError(
                f"{self.path}: a line is not an event ({error}); restore the file from a backup"
            ) from None

    def _new(self, lines: Iterable[bytes]) -> Iterator[tuple[str, Event]]:
        """Yield (id, event) of whole lines that Redis did not give before; a line counts as read once it is folded."""
        last = self._now.history.last_event
        known: Position | None = (-1, 0) if last == "0" else event_order(last)
        for line in lines:
            if not line.endswith(b"\n"):
                break
            entry, _ = DECODER.raw_decode(line.decode())
            if known is None or event_order(entry["id"]) > known:
                known = None  # all lines that follow are new as well
                yield entry["id"], entry["fields"]
            self._place += len(line)

    def _continues(self, first: bytes) -> bool:
        """Return True if a file begins with the checkpoint of the event that was read last."""
        if not first.endswith(b"\n") or self._now.history.last_event == "0":
            return False
        return bool(json.loads(first)["id"] == self._now.history.last_event)

    def _follow_store(self, store: Store) -> None:
        last = self._now.history.last_event
        if last != "0" and not store.holds(last):  # Redis lost events in a crash, or is trimmed past this one
            self._now, self._unsaved, self._place, self._first = Fold(), [], 0, b""
            self._marks.clear()
            self._reloads += 1
            last = "0"
        for entry, event in store.events(after=last):
            self._now.take([(entry, event)])
            self._unsaved.append((entry, event))
        if len(self._unsaved) > 2 * MARK:
            self._forget_saved()

    def _forget_saved(self) -> None:
        """Forget events of Redis that the file holds as well."""
        try:
            size = self.path.stat().st_size
            with self.path.open("rb") as file:
                file.seek(max(0, size - 4096))
                tail = file.read()
            last = event_order(json.loads(tail[: tail.rfind(b"\n")].rsplit(b"\n", 1)[-1])["id"])
        except (OSError, ValueError, KeyError, IndexError):
            return
        self._unsaved = [one for one in self._unsaved if event_order(one[0]) > last]

    # The past.

    def _nearest(self, until: Position) -> tuple[Fold, Iterator[tuple[str, Event]]]:
        """Return (a fold at or before `until`, the events after it)."""
        begins, path = self._file_of(until)
        marks = [place for place in self._marks if begins <= place <= until]
        if marks:
            place = max(marks)
            self._marks.move_to_end(place)
            fold = self._marks[place].copy()
            return fold, self._after(path, place)
        return Fold(), self._after(path, (-1, 0))

    def _file_of(self, until: Position) -> tuple[Position, Path | None]:
        """Return (first event, path) of the last file that begins at or before `until`, else of the first file."""
        found: tuple[Position, Path | None] | None = None
        for path in [*segments(self.folder), self.path]:
            first = self._first_of(path)
            if first is not None and (found is None or first <= until):
                found = first, path
        return found or ((0, 0), None)

    @staticmethod
    def _first_of(path: Path) -> Position | None:
        if path.suffix == ".gz":
            return event_order(path.name.partition(".")[0])
        try:
            with path.open("rb") as file:
                return event_order(json.loads(file.readline())["id"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _after(self, path: Path | None, place: Position) -> Iterator[tuple[str, Event]]:
        """Yield (id, event) of the events after `place`: those of a file, then later ones of Redis."""
        if path is not None:
            for entry, event in read_file(path):
                position = event_order(entry)
                if position > place:
                    yield entry, event
                    place = position
        if path is None or path == self.path:
            yield from (one for one in self._unsaved if event_order(one[0]) > place)

    def _mark(self, fold: Fold) -> None:
        place = event_order(fold.history.last_event)
        self._marks[place] = fold.copy()
        self._marks.move_to_end(place)
        while len(self._marks) > 2 and sum(one.nbytes for one in self._marks.values()) > MARK_BYTES:
            self._marks.popitem(last=False)
