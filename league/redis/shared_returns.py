"""Mean returns between frozen players, kept in Redis: several evaluators add to them, and one that restarts goes on.

    returns = SharedReturns(redis, store.prefix)
    returns.refresh()                      # reads what the others added; only two values if that is nothing
    returns.record(3, 7, games)            # counted once, in Redis and here
    returns.matrix(slots)                  # read as league.empirical_game.returns.Returns is, from this process's copy

Every cell in Redis is the same three float64 as here, and is added to in one step, so nothing is rounded on the way.
"""

from __future__ import annotations

import json
import secrets
import struct
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from league.empirical_game.least_exploitable import LeastExploitable
from league.empirical_game.mixture import EXACT, Mixture, MixtureSettings
from league.empirical_game.returns import FIELDS, Cell, Returns, check_finite
from league.redis.scripts import Scripts
from league.redis.texts import text
from league.rules.win_rates import Slots
from warren.errors import ConfigurationError

BATCH = 2000  # cells sent or asked for at once
PACKED = struct.Struct("<ddd")  # games, sum of returns, sum of their squares
LARGEST = "largest"  # the only member of a sorted set: Redis raises a score in one step

T = TypeVar("T")


class SharedReturns(Returns):
    """The returns of one league; `prefix` is that of its store. For one thread: give each a copy of its own.

    What is read is what this process knows: its own games at once, those of others from the next `refresh` on.
    `version` is that of the cells in Redis that were taken in; every addition of anybody is one more. `settings` that
    were set here are told to the others, again where Redis lost them; where none were, they are those that an evaluator
    told.
    """

    def __init__(self, redis: Any, prefix: str) -> None:
        super().__init__()
        self._own: MixtureSettings | None = None
        self._told: MixtureSettings | None = None  # in Redis
        self.redis, self.prefix = redis, prefix
        self._scripts = Scripts(redis, prefix)
        self._settings_key, self._largest_key = f"{prefix}returns:settings", f"{prefix}returns:largest"
        self._least_key, self._least = f"{prefix}returns:least_exploitable", b""  # the text last read or written
        self._writer, self._calls = secrets.token_hex(8), 0

    def add_cells(self, cells: Sequence[Cell]) -> None:
        """Add games that were summed elsewhere, here and in Redis, in one step and once, also when it is sent again.

        More than BATCH cells are added in several steps.
        """
        for first, second, *sums in cells:
            check_finite(first, second, sums)
        if self._own not in (None, self._told):
            self._settle(self.redis.get(self._settings_key))
        adding = "once" if self.settings.source == EXACT else "always"
        for begin in range(0, len(cells), BATCH):
            self._calls += 1
            places = [(int(first), int(second)) for first, second, *_ in cells[begin : begin + BATCH]]
            added = [PACKED.pack(*sums) for _, _, *sums in cells[begin : begin + BATCH]]
            given = [part for place, sums in zip(places, added, strict=True) for part in (*place, sums)]
            raws = self._scripts("returns_add", self._writer, self._calls, adding, *given)
            for place, raw in zip(places, raws, strict=True):
                self._take(*place, raw)

    def refresh(self) -> int:
        """Take in what changed in Redis since the last time; how many cells."""
        found, told = self.redis.mget(f"{self.prefix}returns:version", self._settings_key)
        self._settle(told)
        if (version := int(found or 0)) == self.version:
            return 0
        if version < self.version:  # another league, or one that a crash of Redis set back
            self._cells, self.total_games, self.version = np.zeros((0, 0, FIELDS)), 0, 0
            self.largest = 0.0
        self.largest = max(self.largest, self.redis.zscore(self._largest_key, LARGEST) or 0.0)
        changes = self.redis.zrange(
            f"{self.prefix}returns:changes", f"({self.version}", "+inf", byscore=True, withscores=True
        )
        fields = [text(field) for field, _ in changes]
        for begin in range(0, len(fields), BATCH):
            batch = fields[begin : begin + BATCH]
            for field, raw in zip(batch, self.redis.hmget(f"{self.prefix}returns", batch), strict=True):
                first, _, second = field.partition(":")
                self._take(int(first), int(second), raw)
        self._read_least()  # last: it may be of an addition between the changes
        self.version = max([version, *(int(score) for _, score in changes)])
        return len(fields)

    def found(self, mixture: LeastExploitable) -> None:
        """Take `mixture` as the one that best responses exploit least, here and in Redis."""
        self.least_exploitable, self._least = mixture, json.dumps(mixture.to_dict()).encode()
        with self.redis.pipeline(transaction=True) as pipeline:
            pipeline.set(self._least_key, self._least)
            pipeline.incr(f"{self.prefix}returns:version")
            pipeline.execute()

    def _read_least(self) -> None:
        if (stored := self.redis.get(self._least_key) or b"") != self._least:
            self._least = stored
            self.least_exploitable = LeastExploitable.from_dict(json.loads(stored)) if stored else None

    def saw(self, largest: float) -> None:
        """Raise `largest` here and in Redis, where it is the largest that anybody saw."""
        if largest > self.largest:
            self.redis.zadd(self._largest_key, {LARGEST: largest}, gt=True)
            super().saw(largest)

    def write(self, pipeline: Any, saved: Returns) -> None:
        """Queue the commands that put the returns of a snapshot into Redis, in place of any."""
        parts = ("", ":changes", ":version", ":largest", ":least_exploitable")
        pipeline.delete(*(f"{self.prefix}returns{part}" for part in parts))
        given = {f"{first}:{second}": PACKED.pack(*sums) for first, second, *sums in saved.cells()}
        fields = list(given)
        for begin in range(0, len(fields), BATCH):
            batch = fields[begin : begin + BATCH]
            pipeline.hset(f"{self.prefix}returns", mapping={field: given[field] for field in batch})
            pipeline.zadd(f"{self.prefix}returns:changes", dict.fromkeys(batch, 1))
        if fields:
            pipeline.set(f"{self.prefix}returns:version", 1)
            pipeline.set(self._settings_key, json.dumps(asdict(saved.settings)))
            pipeline.zadd(self._largest_key, {LARGEST: saved.largest})
        if saved.least_exploitable is not None:
            pipeline.set(self._least_key, json.dumps(saved.least_exploitable.to_dict()))

    @property
    def settings(self) -> MixtureSettings:
        """Return how a mixture is made of the returns."""
        return self._own or self._told or MixtureSettings()

    @settings.setter
    def settings(self, settings: MixtureSettings) -> None:
        self._own = settings

    def _settle(self, told: bytes | None) -> None:
        """Take in the settings that Redis holds; put those that were set here in their place where they differ."""
        self._told = None if told is None else MixtureSettings(**json.loads(told))
        if self._own in (None, self._told):
            return
        found = self._told.source if self._told is not None else self._own.source
        if found != self._own.source and self.redis.exists(f"{self.prefix}returns"):
            raise ConfigurationError(
                f"league.evaluation: the returns of this league are of {found!r}, not of {self._own.source!r}; "
                f"go on with league.evaluation={found}, or begin a new league"
            )
        self.redis.set(self._settings_key, json.dumps(asdict(self._own)))
        self._told = self._own

    def _take(self, first: int, second: int, raw: bytes) -> None:
        self._grow(max(first, second) + 1)
        before = self._cells[first, second, 0]
        self._cells[first, second] = PACKED.unpack(raw)
        self.total_games += int(self._cells[first, second, 0] - before)


class ReturnsCache:
    """One process's copy of the returns for all of its threads and views; read anew only when somebody needs it."""

    def __init__(self, redis: Any, prefix: str) -> None:
        self._returns, self._lock = SharedReturns(redis, prefix), threading.Lock()

    def at(self, version: int) -> ReturnsAt:
        """Return the returns at `version` or newer; Redis is asked only once a cell is."""
        return ReturnsAt(self, version)

    def read(self, version: int, what: Callable[[SharedReturns], T]) -> T:
        """Return `what` of the returns at `version` or newer."""
        with self._lock:
            if version != self._returns.version:  # lower after a crash of Redis that forgot something
                self._returns.refresh()
            return what(self._returns)


class ReturnsAt:
    """A league.matchmaking.view.EmpiricalGame over a process's copy of the returns in Redis."""

    def __init__(self, cache: ReturnsCache, version: int) -> None:
        self._cache, self.version = cache, version

    def games(self, slots: Slots) -> NDArray[np.float64]:
        """Games of each of `slots` in seat 0 (rows) against each in seat 1 (columns), (n, n)."""
        return self._cache.read(self.version, lambda returns: returns.games(slots))

    def matrix(self, slots: Slots) -> NDArray[np.float64]:
        """Mean return of each of `slots` in seat 0 (rows) against each in seat 1 (columns), (n, n); 0 without games."""
        return self._cache.read(self.version, lambda returns: returns.matrix(slots))

    def mixture(self, slots: Slots, played: NDArray[np.bool_] | None = None) -> Mixture:
        """See EmpiricalGame."""
        return self._cache.read(self.version, lambda returns: returns.mixture(slots, played))
