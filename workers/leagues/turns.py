"""Turns of the learning players of a league, in proportion to their shares (`players.NAME.updates`).

`Turns` is for one process that makes the decisions of all players: a league in one process, a streaming actor.
`RoundTurns` is for learners that each ask for decisions by themselves, in gathered rounds.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from league.redis.shared_earnings import SharedEarnings
from league.redis.texts import pairs
from workers.config.league import LeagueConfig

CREDIT = 4  # turns that a player may be behind the others; it does not make up for more
AHEAD = 2  # rounds of its own that a gathered player may be ahead of the others
AWAY = 10.0  # s without a message after which nobody waits for a learner


class Turns:
    """Turns of players: the next has the fewest decisions relative to its share (stride scheduling). Pure.

    `shares`: player -> its share of the decisions, 1 for others. `credit`: decisions by which the player with the
    smallest share may lag behind.
    """

    def __init__(self, shares: Mapping[str, float], credit: float) -> None:
        self._one, self._had = credit, dict[str, float]()
        self.share(shares)

    def share(self, shares: Mapping[str, float]) -> None:
        """Give turns by these shares from now on."""
        self._shares, self._credit = shares, self._one / min(shares.values(), default=1.0)

    def next(self, players: Sequence[str]) -> str:
        """Return the one of `players` with the fewest decisions relative to its share, the first of several."""
        floor = max(self._had.values(), default=0.0) - self._credit
        for player in players:
            self._had[player] = max(self._had.get(player, floor), floor)
        return min(players, key=self._had.__getitem__)

    def had(self, player: str, decisions: float) -> None:
        """Count `decisions` that were made for `player`; a negative number corrects an earlier count."""
        self._had[player] += decisions / self._shares.get(player, 1.0)

    def keep(self, players: Iterable[str]) -> None:
        """Forget all but `players`: the others learn no more."""
        self._had = {player: had for player, had in self._had.items() if player in set(players)}


def shares_of(league: LeagueConfig) -> dict[str, float]:
    """Return player -> its share of the learning, relative to those of the others."""
    return {name: player.updates for name, player in league.players.items()}


def earnings_of(redis: Any, prefix: str, league: LeagueConfig) -> SharedEarnings | None:
    """Return the store of the shares that players earn; None if only `updates` count. `prefix`: of the run's keys."""
    return SharedEarnings(redis, f"{prefix}league:") if league.earned_share else None


class RoundTurns:
    """The turns of one gathered player: each learner writes into Redis from how many decisions its player has learned.

    A player may begin a round while it is at most two rounds of its own ahead of every other, by its share. The others
    do not wait for a player that is paused, has no opponent, or has a learner that was silent for 10 s. Such a player
    does not make up for the rounds that it missed.
    """

    def __init__(self, redis: Any, prefix: str, player: str, league: LeagueConfig) -> None:
        self._redis, self._key, self._player = redis, f"{prefix}turns", player
        self._share, self._round = shares_of(league).get(player, 1.0), league.lanes * league.unroll_length
        self._earnings = earnings_of(redis, prefix, league)
        self._counted: int | None = None  # decisions of the player that are counted in Redis
        self._asked = False  # whether it has asked for a turn since `leave`
        self._lock = threading.Lock()

    def mine(self, steps: int) -> bool:
        """Return whether the next round may begin, for a player that has learned from `steps` decisions in all."""
        with self._lock:
            return self._mine(steps)

    def _mine(self, steps: int) -> bool:
        if self._earnings is not None:
            self._share = self._earnings.get().get(self._player, self._share)
        with self._redis.pipeline(transaction=False) as pipeline:
            pipeline.hgetall(self._key)
            pipeline.time()
            found, (seconds, micros) = pipeline.execute()
        now = seconds + micros / 1e6
        had = {player: float(text.partition(":")[0]) for player, text in self._present(found, now).items()}
        others = [value for player, value in had.items() if player != self._player]
        mine = had.get(self._player, min(others, default=0.0))
        mine += max(0, steps - (steps if self._counted is None else self._counted)) / self._share
        self._redis.hset(self._key, self._player, f"{mine!r}:{now!r}")
        self._counted, self._asked = steps, True
        return mine <= min(others, default=mine) + AHEAD * self._round / self._share

    def stay(self) -> None:
        """Tell the others to go on waiting for this player, if it has asked for a turn."""
        with self._lock:
            if self._asked and self._counted is not None:
                self._mine(self._counted)

    def leave(self) -> None:
        """Tell the others not to wait for this player, until it asks for a turn again."""
        with self._lock:
            if self._asked:
                self._asked = False
                self._redis.hdel(self._key, self._player)

    def _present(self, found: Any, now: float) -> dict[str, str]:
        return {player: text for player, text in pairs(found).items() if now - float(text.partition(":")[2]) <= AWAY}
