"""The history of a league, folded from its stream: ratings over time, snapshots, resets, exploits.

    history = History()
    history.follow(store)          # all events so far; later calls take those since
    history.take(read_file(path))  # or the stream of a saved league

It grows with the players, not with the events: a rating is kept at some hundred moments, evenly spaced.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from league.state.fields import UNFIT, event_order, to_json, unfit
from league.state.league_state import Event, LeagueState
from warren.errors import LeagueError

POINTS = 800  # at most, in a series


class EventSource(Protocol):
    """A source of a league's events, such as league.redis.store.Store."""

    def holds(self, entry: str) -> bool:
        """Return True if the event of this id is still there."""

    def events(self, after: str = "0") -> Iterator[tuple[str, Event]]:
        """Yield (id, event) after the id `after`, oldest first."""


class Snapshot(NamedTuple):
    """A frozen player that was taken from a learning one; `time` is in s of Unix time."""

    time: float
    name: str
    parent: str


class Restart(NamedTuple):
    """A learning player's change to other weights: those of `source`, or its initial ones if that is ""."""

    time: float
    player: str
    source: str


class Series:
    """A value over time, at most at POINTS moments, evenly spaced: if there are more, some are dropped."""

    def __init__(self) -> None:
        self._times: list[float] = []
        self._values: list[float] = []  # NaN between values that belong to different weights
        self._apart = 0.0  # least time between two moments, in s
        self._latest: tuple[float, float] | None = None

    def add(self, time: float, value: float) -> None:
        """Add the value from `time` on; if it comes soon after another, it is only kept as the latest one."""
        self._latest = (time, value)
        if not self._times or time >= self._times[-1] + self._apart or math.isnan(self._values[-1]):
            self._times.append(time)
            self._values.append(value)
        if len(self._times) > POINTS:
            self._thin()

    def cut(self) -> None:
        """End a part: the next value does not continue the previous ones."""
        if self._latest is not None:
            if self._times[-1] != self._latest[0]:
                self._times.append(self._latest[0])
                self._values.append(self._latest[1])
            self._times.append(self._latest[0])
            self._values.append(np.nan)
            self._latest = None

    def points(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return (times (n,), values (n,)), the latest at the end; a value is NaN between two parts."""
        latest = [self._latest] if self._latest is not None and self._times[-1] != self._latest[0] else []
        times, values = self._times + [time for time, _ in latest], self._values + [value for _, value in latest]
        return np.array(times), np.array(values)

    def to_plain(self) -> list[Any]:
        """Return the series as a list that JSON can hold."""
        values = [None if np.isnan(value) else value for value in self._values]
        return [self._times, values, self._apart, self._latest]

    @classmethod
    def from_plain(cls, given: list[Any]) -> Series:
        """Return the series that `to_plain` wrote."""
        made = cls()
        made._times = given[0]
        made._values = [np.nan if value is None else value for value in given[1]]
        made._apart, made._latest = given[2], None if given[3] is None else (given[3][0], given[3][1])
        return made

    def _thin(self) -> None:
        # By time, not by number: the beginning, where every value was kept, becomes as sparse as the rest.
        span = self._times[-1] - self._times[0]
        self._apart = max(2.0 * self._apart, 2.0 * span / POINTS)
        times, values = self._times[:1], self._values[:1]
        for time, value in zip(self._times[1:], self._values[1:], strict=True):
            first_gap = bool(np.isnan(value)) and not np.isnan(values[-1])
            if first_gap or time >= times[-1] + self._apart:
                times.append(time)
                values.append(value)
        self._times, self._values = times, values


@dataclass
class History:
    """The history of one league; `state` is what it is now. Times are in s of Unix time."""

    state: LeagueState = field(default_factory=LeagueState)
    began: float = 0.0
    now: float = 0.0  # time of the last event
    joined: dict[str, float] = field(default_factory=dict)  # of every player
    ended: dict[str, float] = field(default_factory=dict)  # of players that were frozen or removed after they joined
    ratings: dict[str, Series] = field(default_factory=dict)  # Elo of each player that joined as a learning one
    snapshots: list[Snapshot] = field(default_factory=list)
    restarts: list[Restart] = field(default_factory=list)
    last_event: str = "0"

    def follow(self, store: EventSource) -> None:
        """Take in a live league's events since the last call; begin anew if a crash of Redis lost some of them."""
        if self.last_event != "0" and not store.holds(self.last_event):
            vars(self).update(vars(History()))
        self.take(store.events(after=self.last_event))

    def take(self, entries: Iterable[tuple[str, Event]]) -> None:
        """Take in events, (id, event), oldest first. Raises LeagueError as LeagueState.apply does."""
        for entry, event in entries:
            self.take_one(entry, event)

    def take_one(self, entry: str, event: Event) -> None:
        """Take in the next event, whose id is `entry`. Raises LeagueError as `take` does."""
        step = getattr(self, f"_on_{event['event']}", None)
        try:
            self.now = event_order(entry)[0] / 1000.0
            self.began = self.began or self.now
            (step or self.state.apply)(event)
        except LeagueError as error:
            raise LeagueError(f"event {entry}: {error}") from None
        except UNFIT as error:
            raise LeagueError(f"event {entry}: {unfit(event, error)}") from None
        self.last_event = entry

    def checkpoint(self) -> dict[str, str]:
        """Return an event that stands for all taken in so far: a history that begins with it goes on alike."""
        past = {
            "began": self.began,
            "joined": self.joined,
            "ended": self.ended,
            "ratings": {name: series.to_plain() for name, series in self.ratings.items()},
            "snapshots": self.snapshots,
            "restarts": self.restarts,
        }
        return {"event": "checkpoint", "league": self.state.checkpoint(), "history": to_json(past)}

    def _on_checkpoint(self, event: Event) -> None:
        self.state.apply(event)
        past = json.loads(event["history"])
        self.began, self.joined, self.ended = past["began"], past["joined"], past["ended"]
        self.ratings = {name: Series.from_plain(series) for name, series in past["ratings"].items()}
        self.snapshots = [Snapshot(*one) for one in past["snapshots"]]
        self.restarts = [Restart(*one) for one in past["restarts"]]

    def _on_added(self, event: Event) -> None:
        self.state.apply(event)
        name, parent = event["name"], event["parent"]
        self.joined[name] = self.now
        if parent:
            self.snapshots.append(Snapshot(self.now, name, parent))
        elif event["frozen"] != "1":
            self.ratings[name] = Series()
            self._rate(name)

    def _on_changed(self, event: Event) -> None:
        self.state.apply(event)
        if event["field"] in ("frozen", "removed"):
            if event["value"] == "1":
                self.ended[event["name"]] = self.now
            else:
                self.ended.pop(event["name"], None)

    def _on_ended(self, event: Event) -> None:
        match = self.state.matches.get(event["match"])
        self.state.apply(event)
        if match is not None and event["as"] == "counted":
            for name in match.names:
                self._rate(name)

    def _on_reset(self, event: Event) -> None:
        self._restarted(event, "")

    def _on_exploited(self, event: Event) -> None:
        self._restarted(event, event["source"])

    def _restarted(self, event: Event, source: str) -> None:
        name = event["player"]
        self.state.apply(event)
        self.restarts.append(Restart(self.now, name, source))
        if name in self.ratings:
            self.ratings[name].cut()
            self._rate(name)

    def _rate(self, name: str) -> None:
        if name in self.ratings and name not in self.ended:
            self.ratings[name].add(self.now, self.state.ratings[self.state.players[name].slot])
