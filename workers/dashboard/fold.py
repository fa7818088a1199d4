"""A league at one moment, with the past that the page shows, computed by a fold over its events.

    fold = Fold()
    fold.take(read_file(path))     # called again with later events, it goes on
    earlier = fold.copy()          # a mark, from which a moment after it is reached by few events

Pure: no clock, no files, no Redis.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from league.state.ended_matches import EndedMatches
from league.state.history import History
from league.state.league_state import Event
from league.state.records import Match

BINS = 600  # bins of matches over time, at most
MOST = 0xFFFF  # largest number of wins, draws or losses that a result holds
SOURCES = 2000  # processes that are remembered, the ones heard of last
ANEW = ("checkpoint", "created", "added", "changed", "reset", "exploited")  # events after which a page reads all again


class Seen(NamedTuple):
    """The time at which a process was last heard of, s of Unix time, and its matches or learning periods so far."""

    time: float
    number: int


class LastResult(NamedTuple):
    """The newest counted match of a pair, from its home player's side; `time` in s of Unix time."""

    time: float
    wins: int
    draws: int
    losses: int


class LastResults:
    """The newest result of each ordered pair (home, away) of slots."""

    def __init__(self, slots: int = 0) -> None:
        self._times = np.zeros((slots, slots))
        self._counts = np.zeros((slots, slots), np.uint64)  # wins, draws and losses in 16 bits each

    def record(self, home: int, away: int, time: float, outcomes: str) -> None:
        """Note the result of a match: "w", "d" or "l" of the home player for each of its games."""
        need = max(home, away) + 1
        if need > len(self._times):
            room = max(need, 2 * len(self._times), 8)
            times, counts = np.zeros((room, room)), np.zeros((room, room), np.uint64)
            n = len(self._times)
            times[:n, :n], counts[:n, :n] = self._times, self._counts
            self._times, self._counts = times, counts
        wins, draws = min(outcomes.count("w"), MOST), min(outcomes.count("d"), MOST)
        self._times[home, away] = time
        self._counts[home, away] = wins << 32 | draws << 16 | min(outcomes.count("l"), MOST)

    def between(self, home: int, away: int) -> LastResult | None:
        """Return the newest result between two slots, either being home, from the side of `home`; None before any."""
        n = len(self._times)
        if max(home, away) >= n or not (self._times[home, away] or self._times[away, home]):
            return None
        turned = bool(self._times[away, home] > self._times[home, away])
        row, column = (away, home) if turned else (home, away)
        packed = int(self._counts[row, column])
        wins, draws, losses = packed >> 32, packed >> 16 & MOST, packed & MOST
        if turned:
            wins, losses = losses, wins
        return LastResult(float(self._times[row, column]), wins, draws, losses)

    def clear(self, slot: int) -> None:
        """Forget the results of the player at `slot`, which has other weights from now on."""
        self._times[slot : slot + 1], self._times[:, slot : slot + 1] = 0.0, 0.0

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return self._times.nbytes + self._counts.nbytes


class Throughput:
    """Counted matches and games over time, in at most BINS bins of one width; bins double in width as time goes on."""

    def __init__(self) -> None:
        self.began = 0.0  # s of Unix time, of the first bin
        self.width = 1.0  # s
        self.matches: list[int] = []
        self.games: list[int] = []

    def add(self, time: float, games: int) -> None:
        """Count one match of so many games."""
        self.began = self.began or time
        place = int(max(0.0, time - self.began) / self.width)
        while place >= BINS:
            self._halve()
            place = int((time - self.began) / self.width)
        missing = place + 1 - len(self.matches)
        if missing > 0:
            self.matches += [0] * missing
            self.games += [0] * missing
        self.matches[place] += 1
        self.games[place] += games

    def _halve(self) -> None:
        self.width *= 2.0
        for name in ("matches", "games"):
            old: list[int] = getattr(self, name)
            old += [0] * (len(old) % 2)
            setattr(self, name, [one + other for one, other in zip(old[::2], old[1::2], strict=True)])


class Changes(NamedTuple):
    """Changes since the last look. `anew`: more than cells and ratings changed, so that pages read all again."""

    anew: bool
    pairs: list[tuple[int, int]]  # pairs of slots
    slots: list[int]


@dataclass
class Fold:
    """The history of a league, with last results, matches over time, and the processes that were heard of."""

    history: History = field(default_factory=History)
    last: LastResults = field(default_factory=LastResults)
    throughput: Throughput = field(default_factory=Throughput)
    actors: dict[str, Seen] = field(default_factory=dict)  # by name, the one heard of last at the end
    learners: dict[str, Seen] = field(default_factory=dict)
    events: int = 0  # number taken in, not counting checkpoints
    _pairs: set[tuple[int, int]] = field(default_factory=set)
    _slots: set[int] = field(default_factory=set)
    _anew: bool = False

    def take(self, entries: Iterable[tuple[str, Event]]) -> None:
        """Take in events, (id, event) oldest first. Raises LeagueError for an event that this version does not know."""
        matches = self.history.state.matches
        for entry, event in entries:
            kind = event["event"]
            match = matches.get(event["match"]) if kind == "ended" else None
            self.history.take_one(entry, event)
            self.events += kind != "checkpoint"
            if kind in ANEW:
                matches = self.history.state.matches  # a checkpoint replaces it
                self._anew = True
                if kind in ("reset", "exploited"):
                    self.last.clear(self.history.state.players[event["player"]].slot)
            elif match is not None:
                self._ended(match, event)
            elif kind == "issued":
                self._heard(self.actors, event["holder"], 0)
            elif kind in ("period_opened", "progressed"):
                learner = event.get("learner") or self.history.state.progress[event["player"]].learner
                self._heard(self.learners, learner, int(kind == "period_opened"))

    def changes(self) -> Changes:
        """Return the changes since the last call, and forget them."""
        found = Changes(self._anew, sorted(self._pairs), sorted(self._slots))
        self._anew, self._pairs, self._slots = False, set(), set()
        return found

    def copy(self) -> Fold:
        """Return a copy that takes in events by itself; the copy does not know which matches have ended."""
        history, state = copy.copy(self.history), copy.copy(self.history.state)
        state.players, state.matches = dict(state.players), dict(state.matches)
        state.progress = {name: copy.copy(progress) for name, progress in state.progress.items()}
        state.ratings, state.counters = list(state.ratings), Counter(state.counters)
        state.payoff, state.ended = copy.deepcopy(state.payoff), EndedMatches()
        history.state = state
        history.joined, history.ended = dict(history.joined), dict(history.ended)
        history.ratings = {name: copy.deepcopy(series) for name, series in history.ratings.items()}
        history.snapshots, history.restarts = list(history.snapshots), list(history.restarts)
        made = Fold(history, copy.deepcopy(self.last), copy.deepcopy(self.throughput))
        made.actors, made.learners, made.events = dict(self.actors), dict(self.learners), self.events
        return made

    @property
    def nbytes(self) -> int:
        """Bytes of its large parts."""
        return int(self.history.state.payoff.cells.nbytes) + self.last.nbytes

    def _ended(self, match: Match, event: Event) -> None:
        counted = event["as"] == "counted"
        if by := event.get("by", "") or match.holder:
            self._heard(self.actors, by, int(counted))
        if not counted:
            return
        time, players = self.history.now, self.history.state.players
        home, away = players[match.home].slot, players[match.away].slot
        self.last.record(home, away, time, event["outcomes"])
        self.throughput.add(time, len(event["outcomes"]))
        self._pairs.add((home, away))
        self._slots.update((home, away))

    def _heard(self, known: dict[str, Seen], name: str, more: int) -> None:
        before = known.pop(name, None)
        known[name] = Seen(self.history.now, (before.number if before else 0) + more)
        if len(known) > SOURCES:
            del known[next(iter(known))]
