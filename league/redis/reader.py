"""Reading the league out of Redis: the roster as a cache that follows it, a view, and all of the league at once."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from league.matchmaking.view import Player, Roster
from league.redis.scripts import Scripts
from league.redis.shared_looks import SharedLooks
from league.redis.shared_returns import ReturnsAt
from league.redis.texts import pairs, text
from league.rules.plateau import Look, since
from league.rules.settings import Settings
from league.rules.win_rates import Payoff, Slots, games_of, row_from_bytes, win_rates_of
from league.state.league_state import LeagueState
from league.state.records import match_from, player_from, progress_from


def load(scripts: Scripts) -> LeagueState:
    """Read the whole league in one step."""
    settings, players, rows, ratings, counters, matches, version, last = scripts("dump")
    state = LeagueState(settings=Settings.from_fields(pairs(settings)) if settings else Settings())
    state.payoff = Payoff(state.settings.decay)
    state.payoff.grow(len(players))
    for slot, ((raw_name, raw_fields), row) in enumerate(zip(players, rows, strict=True)):
        name, fields = text(raw_name), pairs(raw_fields)
        state.players[name] = player_from(name, fields)
        state.progress[name] = progress_from(fields)
        state.payoff.cells[slot] = row_from_bytes(row, len(players))
    state.ratings = [float(rating) for rating in ratings]
    state.counters = Counter({name: int(count) for name, count in pairs(counters).items()})
    state.matches = {text(match): match_from(text(match), pairs(fields)) for match, fields in matches}
    state.roster_version, state.last_event = int(version), text(last)
    return state


Change = tuple[str, bytes | None]  # a player, and when it changed; None if an older release wrote it


class RosterCache:
    """The roster of this process; a refresh reads two values, and then only the players that changed.

    While Redis holds the newest change known here, it holds all that is known here: a crash that undoes changes undoes
    the newest first. If that player's last change is another one, the whole roster is read again.
    """

    def __init__(self, redis: Any, prefix: str) -> None:
        self._redis, self._prefix = redis, prefix
        self._lock = threading.Lock()
        self._players: dict[str, Player] = {}
        self._roster = Roster()
        self._newest: Change = ("", None)

    def ask(self, pipeline: Any) -> str:
        """Queue reading the two values that `at` takes; return the player that changed last, as this process knows."""
        name, _ = self._newest
        pipeline.get(f"{self._prefix}roster")
        pipeline.hget(f"{self._prefix}player:{name}", "changed_at")
        return name

    def at(self, version: int | None, change: Change | None = None) -> Roster:
        """Return the roster at `version` or newer; None for the last one seen.

        `change` is the player that `ask` returned, with the time of that player's last change in Redis.
        """
        with self._lock:
            if change is not None and change[0] == self._newest[0] and change != self._newest:
                self._forget()
            if version is None or version == self._roster.version:
                return self._roster
            if version < self._roster.version:
                # Another thread has read a newer one meanwhile; or it is another league, or a crash undid changes.
                version = int(self._redis.get(f"{self._prefix}roster") or 0)
                if version == self._roster.version:
                    return self._roster
                if version < self._roster.version:
                    self._forget()
            changes = self._redis.zrange(
                f"{self._prefix}changes", f"({self._roster.version}", "+inf", byscore=True, withscores=True
            )
            names = [text(name) for name, _ in changes]
            with self._redis.pipeline(transaction=False) as pipeline:
                for name in names:
                    pipeline.hgetall(f"{self._prefix}player:{name}")
                found = pipeline.execute()
            for name, fields in zip(names, found, strict=True):
                self._players[name] = player_from(name, pairs(fields))
            if names:
                self._newest = names[-1], found[-1].get(b"changed_at")
            newest = max((int(score) for _, score in changes), default=version)
            self._roster = Roster(self._players.values(), newest)
            return self._roster

    def _forget(self) -> None:
        self._players, self._roster, self._newest = {}, Roster(), ("", None)


class RedisView:
    """A league.matchmaking.view.View over Redis; a payoff row is read on its first use, and kept."""

    def __init__(
        self, redis: Any, prefix: str, roster: Roster, counted: int, empirical_game: ReturnsAt, looks: SharedLooks
    ) -> None:
        self._redis, self._prefix, self._looks = redis, prefix, looks
        self.roster, self.counted, self.empirical_game = roster, counted, empirical_game
        self._rows: dict[int, NDArray[np.float64]] = {}
        self._rates: dict[int, NDArray[np.float64]] = {}

    def keep_row(self, slot: int, data: bytes | None) -> None:
        """Keep a payoff row that came with another answer."""
        self._rows[slot] = row_from_bytes(data or b"", self.roster.slots)

    def row(self, slot: int) -> NDArray[np.float64]:
        """Return the payoff row of `slot`, (slots, 3) float64."""
        if slot not in self._rows:
            self.keep_row(slot, self._redis.get(f"{self._prefix}payoff:{slot}"))
        return self._rows[slot]

    def win_rates(self, home: int, away: Slots) -> NDArray[np.float64]:
        """Win rates of `home` against each of `away`, (n,)."""
        if home not in self._rates:
            self._rates[home] = win_rates_of(self.row(home))
        return self._rates[home][away]

    def games(self, home: int, away: Slots) -> NDArray[np.float64]:
        """Decayed games of `home` against each of `away`, (n,)."""
        return games_of(self.row(home))[away]

    def matrix(self, slots: Slots) -> NDArray[np.float64]:
        """Win rates of each of `slots` (rows) against each (columns), (n, n); all rows come in one answer."""
        missing = [int(slot) for slot in slots if int(slot) not in self._rows]
        if missing:
            rows = self._redis.mget([f"{self._prefix}payoff:{slot}" for slot in missing])
            for slot, row in zip(missing, rows, strict=True):
                self.keep_row(slot, row)
        cells = np.array([self._rows[int(slot)][slots] for slot in slots]).reshape(len(slots), len(slots), 3)
        return win_rates_of(cells)

    def elo(self, slots: Slots) -> NDArray[np.float64]:
        """Elo ratings, (n,)."""
        scores = self._redis.zmscore(f"{self._prefix}elo", [int(slot) for slot in slots]) if len(slots) else []
        return np.array(scores, dtype=np.float64)

    def looks(self, me: Player) -> list[Look]:
        """Return evaluators' looks at a learning player since its last snapshot or reset, oldest first."""
        snapshot = self._redis.hget(f"{self._prefix}player:{me.name}", "snapshot_steps")
        return since(self._looks.of(me.name), me.generation, int(snapshot or 0))
