"""Views of the league for matchmakers, read from Redis."""

from __future__ import annotations

import time
from typing import Any

from league.matchmaking.view import Roster
from league.redis.reader import RedisView, RosterCache
from league.redis.shared_looks import SharedLooks
from league.redis.shared_returns import ReturnsCache
from warren.errors import LeagueAbsent


class Views:
    """The views of one process; `age` is the `view_age` of `Store`."""

    def __init__(self, redis: Any, prefix: str, age: float) -> None:
        self._redis, self._prefix, self._age = redis, prefix, age
        self._rosters = RosterCache(redis, prefix)
        self._returns, self._looks = ReturnsCache(redis, prefix), SharedLooks(redis, prefix)
        self._recent: dict[str, tuple[float, RedisView]] = {}

    @property
    def last_roster(self) -> Roster:
        """Return the roster that this process saw last, without asking Redis."""
        return self._rosters.at(None)

    def now(self, home: str | None = None) -> RedisView:
        """Read the league as it is now in one round trip, with the payoff row of `home` if this process knows `home`.

        Raises LeagueAbsent if `home` is given while Redis holds no league that is ready.
        """
        known = self._rosters.at(None)
        slot = known[home].slot if home is not None and home in known else None
        with self._redis.pipeline(transaction=False) as pipeline:
            pipeline.exists(f"{self._prefix}ready")
            newest = self._rosters.ask(pipeline)
            pipeline.hget(f"{self._prefix}counters", "counted")
            pipeline.get(f"{self._prefix}returns:version")
            if slot is not None:
                pipeline.get(f"{self._prefix}payoff:{slot}")
            ready, version, changed_at, counted, returns, *row = pipeline.execute()
        if home is not None and not ready:
            raise LeagueAbsent(f"Redis holds no league under {self._prefix!r} that is ready; ask again soon")
        roster = self._rosters.at(int(version or 0), (newest, changed_at))
        game = self._returns.at(int(returns or 0))
        view = RedisView(self._redis, self._prefix, roster, int(counted or 0), game, self._looks)
        if slot is not None:
            view.keep_row(slot, row[0])
        return view

    def recent(self, home: str) -> RedisView:
        """Return a view for `home` that is at most `age` s old."""
        if self._age <= 0.0:
            return self.now(home)
        until, view = self._recent.get(home, (0.0, None))
        if view is None or time.monotonic() >= until:
            view = self.now(home)
            self._recent[home] = (time.monotonic() + self._age, view)
        return view
