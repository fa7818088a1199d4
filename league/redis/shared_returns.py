"""Mean returns between frozen players, kept in Redis: several evaluators add to them, and one that restarts goes on.

    returns = SharedReturns(redis, store.prefix)
    returns.refresh()                      # what the others added since; one number is read where that is nothing
    returns.record(3, 7, games)            # counted once, in Redis and here
    returns.matrix(slots)                  # read as league.empirical_game.returns.Returns is, from this process's copy

Every cell in Redis is the same three float64 as here, and is added to in one step, so nothing is rounded on the way.
"""

from __future__ import annotations

import json
import secrets
import struct
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from league.empirical_game.mixture import Mixture, MixtureSettings
from league.empirical_game.returns import FIELDS, Cell, Returns
from league.redis.scripts import Scripts
from league.redis.texts import text
from league.rules.win_rates import Slots
from warren.errors import ConfigurationError

BATCH = 2000  # cells sent or asked for at once
PACKED = struct.Struct("<ddd")  # games, sum of returns, sum of their squares

T = TypeVar("T")


class SharedReturns(Returns):
    """The returns of one league; `prefix` is that of its store. For one thread: give each a copy of its own.

    What is read is what this process knows: its own games at once, those of others from the next `refresh` on.
    `version` is that of the cells in Redis that were taken in; every addition of anybody is one more. `settings` that
    were set here are told to the others; where none were, they are those that an evaluator told.
    """

    def __init__(self, redis: Any, prefix: str) -> None:
        super().__init__()
        self._own: MixtureSettings | None = None
        self._told = MixtureSettings()
        self._sent: MixtureSettings | None = None
        self.redis, self.prefix = redis, prefix
        self._scripts = Scripts(redis, prefix)
        self._writer, self._calls = secrets.token_hex(8), 0

    def add_cells(self, cells: Sequence[Cell]) -> None:
        """Add games that were summed elsewhere, here and in Redis, in one step and once, also when it is sent again.

        More than BATCH cells are added in several steps.
        """
        self._tell()
        for begin in range(0, len(cells), BATCH):
            self._calls += 1
            places = [(int(first), int(second)) for first, second, *_ in cells[begin : begin + BATCH]]
            added = [PACKED.pack(*sums) for _, _, *sums in cells[begin : begin + BATCH]]
            given = [part for place, sums in zip(places, added, strict=True) for part in (*place, sums)]
            raws = self._scripts("returns_add", self._writer, self._calls, *given)
            for place, raw in zip(places, raws, strict=True):
                self._take(*place, raw)

    def refresh(self) -> int:
        """Take in what changed in Redis since the last time; how many cells."""
        self._tell()
        version = int(self.redis.get(f"{self.prefix}returns:version") or 0)
        if version == self.version:
            return 0
        if self._own is None and (told := self.redis.get(f"{self.prefix}returns:settings")):
            self._told = MixtureSettings(**json.loads(told))
        if version < self.version:  # another league, or one that a crash of Redis set back
            self._cells, self.total_games, self.version = np.zeros((0, 0, FIELDS)), 0, 0
        changes = self.redis.zrange(
            f"{self.prefix}returns:changes", f"({self.version}", "+inf", byscore=True, withscores=True
        )
        fields = [text(field) for field, _ in changes]
        for begin in range(0, len(fields), BATCH):
            batch = fields[begin : begin + BATCH]
            for field, raw in zip(batch, self.redis.hmget(f"{self.prefix}returns", batch), strict=True):
                first, _, second = field.partition(":")
                self._take(int(first), int(second), raw)
        self.version = max((int(score) for _, score in changes), default=version)
        return len(fields)

    def cells(self) -> list[Cell]:
        """All cells with games, as this process knows them."""
        found = []
        for first, second in np.argwhere(self._cells[..., 0] > 0.0):
            games, total, squares = map(float, self._cells[first, second])
            found.append((int(first), int(second), games, total, squares))
        return found

    def write(self, pipeline: Any, cells: Iterable[Cell]) -> None:
        """Queue the commands that put the cells of a snapshot into Redis, in place of any."""
        pipeline.delete(*(f"{self.prefix}returns{part}" for part in ("", ":changes", ":version")))
        given = {f"{first}:{second}": PACKED.pack(*sums) for first, second, *sums in cells}
        fields = list(given)
        for begin in range(0, len(fields), BATCH):
            batch = fields[begin : begin + BATCH]
            pipeline.hset(f"{self.prefix}returns", mapping={field: given[field] for field in batch})
            pipeline.zadd(f"{self.prefix}returns:changes", dict.fromkeys(batch, 1))
        if fields:
            pipeline.set(f"{self.prefix}returns:version", 1)

    @property
    def settings(self) -> MixtureSettings:
        """Return how a mixture is made of the returns."""
        return self._own or self._told

    @settings.setter
    def settings(self, settings: MixtureSettings) -> None:
        self._own = settings

    def _tell(self) -> None:
        if self._own is not None and self._own != self._sent:
            if (found := self._found_in_redis()) not in (None, self._own.source):
                raise ConfigurationError(
                    f"league.evaluation: the returns of this league are of {found!r}, not of {self._own.source!r}; "
                    f"go on with league.evaluation={found}, or begin a new league"
                )
            self.redis.set(f"{self.prefix}returns:settings", json.dumps(asdict(self._own)))
            self._sent = self._own

    def _found_in_redis(self) -> str | None:
        known = SharedReturns(self.redis, self.prefix)
        known.refresh()
        return known.found_by()

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
