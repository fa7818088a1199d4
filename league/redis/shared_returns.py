"""Mean returns between frozen players, kept in Redis: several evaluators add to them and can continue after a restart.

    returns = SharedReturns(redis, store.prefix)
    returns.refresh()                      # reads what the others added; only two values if nothing changed
    returns.record(3, 7, games)            # counted once, in Redis and here
    returns.matrix(slots)                  # from this process's copy, as in league.empirical_game.returns.Returns

Every cell in Redis is the same three float64 as here, and an addition is one step, so nothing is rounded on the way.
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
LARGEST = "largest"  # the only member of a sorted set, whose score Redis can raise in one step

T = TypeVar("T")


class SharedReturns(Returns):
    """The returns of one league; `prefix` is that of its store. Not thread-safe: give each thread its own copy.

    Reads show this process's copy: its own games at once, those of others after the next `refresh`. `version` is that
    of the cells in Redis that were taken in; each addition by any process makes it one more. `settings` that were set
    here are written to Redis for the others, again if Redis lost them; without any set here, those of an evaluator in
    Redis apply.
    """

    def __init__(self, redis: Any, prefix: str) -> None:
        super().__init__()
        self._own: MixtureSettings | None = None
        self._told: MixtureSettings | None = None  # those in Redis
        self.redis, self.prefix = redis, prefix
        self._scripts = Scripts(redis, prefix)
        self._settings_key, self._largest_key = f"{prefix}returns:settings", f"{prefix}returns:largest"
        self._least_key, self._least = f"{prefix}returns:least_exploitable", b""  # the text last read or written
        self._writer, self._calls = secrets.token_hex(8), 0

    def add_cells(self, cells: Sequence[Cell]) -> None:
        """Add games that were summed elsewhere, here and in Redis, in one step, and only once if the call is resent.

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
        """Take in what changed in Redis since the last time; return the number of changed cells."""
        found, told = self.redis.mget(f"{self.prefix}returns:version", self._settings_key)
        self._settle(told)
        if (version := int(found or 0)) == self.version:
            return 0
        if version < self.version:  # another league, or a crash of Redis undid additions
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
        self._read_least()  # last: it may belong to an addition made since `changes` were read
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
        """Raise `largest` here and in Redis, which keeps the largest that any process saw."""
        if largest > self.largest:
            self.redis.zadd(self._largest_key, {LARGEST: largest}, gt=True)
            super().saw(largest)

    def write(self, pipeline: Any, saved: Returns) -> None:
        """Queue the commands that replace the returns in Redis by those of a snapshot."""
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
        """Take in the settings that Redis holds; if others were set here, write these to Redis in their place."""
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
    """One process's copy of the returns for all of its threads and views; read again only when a reader needs it."""

    def __init__(self, redis: Any, prefix: str) -> None:
        self._returns, self._lock = SharedReturns(redis, prefix), threading.Lock()

    def at(self, version: int) -> ReturnsAt:
        """Return the returns at `version` or newer; Redis is only asked once a cell is read."""
        return ReturnsAt(self, version)

    def read(self, version: int, what: Callable[[SharedReturns], T]) -> T:
        """Return `what(returns)` of the returns at `version` or newer."""
        with self._lock:
            if version != self._returns.version:  # a lower version means that Redis lost some in a crash
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
