"""Streaming in a league: an actor plays without pause, for each learning player in turn, and sends what it collected.

The next turn goes to the player with the fewest decisions so far relative to its share, among those whose last segment
has been sent. A player that is paused, or whose learner is away or slow, does not delay the others: it is passed over,
and later makes up for a few turns at most.

A segment that finds no room in its queue waits in the outbox (../rollout/sending/outbox.py). Segments are numbered when
they are made, so one that is sent twice, because the broker went away before confirming it, counts once.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import redis

from warren.errors import ConfigurationError, MatchmakingError, PlayerUnavailable, WarrenError
from workers.config.league import LeagueConfig
from workers.leagues.known_players import Learning
from workers.leagues.turns import CREDIT, Turns, earnings_of, shares_of
from workers.rollout.sending.outbox import Outbox
from workers.runtime.actor_count import Count
from workers.runtime.session import Session

logger = logging.getLogger(__name__)

LOOK_EVERY = 1.0  # s between requests for the list of learning players
AGAIN_AFTER = 1.0  # s until the next try with a player that could not be played for
IDLE = 0.005  # s between checks while no player can be played for
FAILURES = 2  # rollouts in a row that may fail in the user's code before this actor gives up


@dataclass
class TurnState:
    """The time until which one player is not played for, and the reason."""

    play_at: float = 0.0  # monotonic time from which it may be played for
    deferred: str = ""  # why it could not be
    failures: int = 0  # rollouts in a row that failed in the user's code


class Host(Protocol):
    """The actor that a stream plays with."""

    def learning(self) -> list[str]:
        """Ask the league for the players to play for. Raises LeagueError."""
        ...

    def player(self, name: str) -> Learning:
        """Return a learning player; the first call subscribes to its weights."""
        ...

    def collect(self, home: Learning, actors: int, trajectories: int) -> dict[str, Any]:
        """Return a segment's payload of `home`, whose games `actors` actors share. Raises what the league raises."""
        ...

    def leave_matches(self, home: Learning) -> None:
        """Report the matches of `home`; its games begin anew when it is played for again."""
        ...


class LeagueStream:
    """The loop of a streaming actor's sampling thread: it chooses the next player, plays, and sends segments."""

    def __init__(
        self, host: Host, session: Session, league: LeagueConfig, stopping: threading.Event, far: bool = False
    ) -> None:
        """`far`: the servers are far away, so segments are sent while the next are played."""
        self._host, self._stopping, self._actors = host, stopping, Count(session)
        # One segment's share of an update's lanes, independent of the present number of actors.
        self._lanes = -(-league.lanes // session.config.segments_per_update)
        self._turns = Turns(shares_of(league), CREDIT * self._lanes * league.unroll_length)
        self._earnings = earnings_of(session.redis, session.topology.key_prefix, league)
        self._outbox = Outbox(session, far)
        self._turn_states: dict[str, TurnState] = {}
        self._learning: list[str] = []  # players to play for, as the league said last
        self._look_at = 0.0

    def run(self) -> None:
        """Play and send until told to stop. Raises ConfigurationError when the user's environment keeps failing."""
        try:
            while not self._stopping.is_set():
                self._look()
                self._outbox.tend(self._learning)
                ready = self._ready()
                if ready:
                    self._play(self._turns.next(ready))
                else:
                    self._stopping.wait(IDLE)
        finally:
            self._outbox.close()

    def _look(self) -> None:
        """Ask the league for the learning players, once per second."""
        if time.monotonic() < self._look_at:
            return
        try:
            self._learning = self._host.learning()
        except WarrenError as error:
            if not self._stopping.is_set():
                logger.warning("playing on for %s: %s", ", ".join(self._learning) or "nobody", error)
        self._look_at = time.monotonic() + LOOK_EVERY
        try:
            for name in self._learning:
                if name not in self._outbox:
                    self._host.player(name)  # subscribes to its weights
                    self._outbox.open(name)
                    self._turn_states[name] = TurnState()
        except WarrenError as error:
            logger.warning("players cannot be played for yet: %s", error)
        self._learning = [name for name in self._learning if name in self._outbox]
        self._turns.keep(self._learning)
        with contextlib.suppress(redis.RedisError):  # the shares then stay as they were
            if self._earnings is not None and (earned := self._earnings.get()):
                self._share(earned)

    def _share(self, earned: Mapping[str, float]) -> None:
        """Give turns by the shares that players have earned."""
        self._turns.share(earned)

    def _ready(self) -> list[str]:
        """Return the learning players that have weights and whose next segment the outbox takes."""
        now = time.monotonic()
        ready = []
        for name in self._learning:
            turn = self._turn_states[name]
            if now >= turn.play_at and self._outbox.takes(name):
                weights = self._host.player(name).weights
                if weights.version >= 0:
                    ready.append(name)
                    continue
                turn.play_at = now + AGAIN_AFTER
                self._defer(name, "its learner has published no weights")
                with contextlib.suppress(redis.RedisError):
                    weights.fetch()
        return ready

    def _play(self, name: str) -> None:
        home, turn = self._host.player(name), self._turn_states[name]
        turn.play_at = time.monotonic() + AGAIN_AFTER
        try:
            payload = self._host.collect(home, self._actors(), self._lanes)
        except (MatchmakingError, PlayerUnavailable) as error:  # no failure: paused, or alone in a new league
            self._defer(name, str(error))
            return
        except ConfigurationError as error:
            turn.failures += 1
            if turn.failures >= FAILURES:
                raise
            logger.error("%s; making the games of %s anew, once", error, name, extra={"player": name})
            self._host.leave_matches(home)
            return
        except (WarrenError, redis.RedisError) as error:
            if not self._stopping.is_set():
                logger.warning("could not play for %s, trying again: %s", name, error, extra={"player": name})
            return
        turn.play_at, turn.failures, turn.deferred = 0.0, 0, ""
        self._turns.had(name, payload["trajectory"]["terminated"].size)
        self._outbox.put(name, payload)

    def _defer(self, name: str, why: str) -> None:
        if why != self._turn_states[name].deferred:
            self._turn_states[name].deferred = why
            logger.info("player %s: waiting: %s", name, why, extra={"player": name})
