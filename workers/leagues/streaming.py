"""Streaming in a league: an actor plays without pause, for each learning player in turn, and sends what it collected.

The next turn is that of the player with the fewest decisions so far, counted by its share, of those whose last segment
has been sent. A player that is paused, or whose learner is away or slow, costs the others nothing: it is passed over,
and once it is back no more than a few turns are made up for.

A segment that finds no room in its queue waits here, one per player. It is numbered when it is made, so that one that
is sent twice, because the broker went away before confirming it, counts once.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import redis
from kombu.exceptions import OperationalError

from tasks.client.bounded_sender import FIRST_WAIT, LAST_WAIT, BoundedSender
from warren.errors import ConfigurationError, MatchmakingError, PlayerUnavailable, WarrenError
from workers.config.league import LeagueConfig
from workers.leagues.known_players import Learning
from workers.rollout.sending.numbering import segment_of
from workers.runtime.actor_count import Count, SegmentsWaiting
from workers.runtime.segment_ledger import Segment
from workers.runtime.session import Session

logger = logging.getLogger(__name__)

LOOK_EVERY = 1.0  # s between requests for the list of learning players
AGAIN_AFTER = 1.0  # s until a player is played for again that could not be
IDLE = 0.005  # s between checks while nobody can be played for
CREDIT = 4  # turns that a player may be behind the others: what it missed beyond is not made up for
FAILURES = 2  # rollouts in a row that may fail in the user's code before this actor gives up


class Turns:
    """Turns of players: next is the one with the fewest decisions by its share (stride scheduling). Pure.

    `shares`: player -> its share of the decisions, 1 for others. `credit`: decisions by which a player may lag behind.
    """

    def __init__(self, shares: Mapping[str, float], credit: float) -> None:
        self._shares, self._credit = shares, credit
        self._had: dict[str, float] = {}

    def next(self, players: Sequence[str]) -> str:
        """Return the one of `players` with the fewest decisions by its share, the first of several."""
        floor = max(self._had.values(), default=0.0) - self._credit
        for player in players:
            self._had[player] = max(self._had.get(player, floor), floor)
        return min(players, key=self._had.__getitem__)

    def had(self, player: str, decisions: int) -> None:
        """Count `decisions` that were made for `player`."""
        self._had[player] += decisions / self._shares.get(player, 1.0)

    def keep(self, players: Iterable[str]) -> None:
        """Forget all but `players`: the others learn no more."""
        self._had = {player: had for player, had in self._had.items() if player in set(players)}


@dataclass
class Sending:
    """One player's segments on their way to its learner."""

    sender: BoundedSender
    unsent: tuple[dict[str, Any]] | None = None  # a segment that waits for room, as the learn task takes it
    wait: float = FIRST_WAIT  # s until the next try
    again_at: float = 0.0  # monotonic time of that
    play_at: float = 0.0  # monotonic time from which on it is played for
    deferred: str = ""  # why it could not be played for
    failures: int = field(default=0)  # rollouts in a row that failed in the user's code


class Host(Protocol):
    """The actor that a stream plays with."""

    def learning(self) -> list[str]:
        """Ask the league for the players to play for. Raises LeagueError."""
        ...

    def player(self, name: str) -> Learning:
        """Return a learning player, whose weights are followed from the first time on."""
        ...

    def collect(self, home: Learning, actors: int, trajectories: int) -> dict[str, Any]:
        """Return the payload of a segment of `home`, made by one of `actors`. Raises what the league raises."""
        ...

    def leave_matches(self, home: Learning) -> None:
        """Report the matches of `home`, whose games are begun anew when it is played for again."""
        ...


class LeagueStream:
    """The work of a streaming actor's sampling thread: who is played for next, and the way of segments to learners."""

    def __init__(self, host: Host, session: Session, league: LeagueConfig, stopping: threading.Event) -> None:
        self._host, self._session, self._stopping = host, session, stopping
        self._bound, self._actors = SegmentsWaiting(session), Count(session)
        # As large as the share of an update that each of its segments has, however many actors there are now.
        self._lanes = -(-league.lanes // session.config.segments_per_update)
        shares = {name: float(player.updates) for name, player in league.players.items()}
        self._turns = Turns(shares, CREDIT * self._lanes * league.unroll_length)
        self._connection = session.app.connection_for_write()
        self._sending: dict[str, Sending] = {}
        self._learning: list[str] = []  # players to play for, as the league said last
        self._look_at = 0.0
        self._unnoted: list[Segment] = []  # segments that the broker has, and the ledger is still to be told of

    def run(self) -> None:
        """Play and send until told to stop. Raises ConfigurationError when the user's environment keeps failing."""
        try:
            while not self._stopping.is_set():
                self._look()
                self._send_what_waits()
                ready = self._ready()
                if ready:
                    self._play(self._turns.next(ready))
                else:
                    self._stopping.wait(IDLE)
        finally:
            for sending in self._sending.values():
                sending.sender.withdraw()
            self._note()

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
                if name not in self._sending:
                    self._sending[name] = self._begin(name)
        except (WarrenError, OperationalError, *self._connection.connection_errors) as error:
            logger.warning("players cannot be played for yet, since the broker is away: %s", error)
            self._connection.close()
        self._learning = [name for name in self._learning if name in self._sending]
        self._turns.keep(self._learning)

    def _begin(self, name: str) -> Sending:
        self._host.player(name)  # from now on its weights are followed
        queue = self._session.topology.learner_queue(name)
        self._connection.ensure_connection(max_retries=1, interval_start=0)
        queue(self._connection.default_channel).declare()  # its learner may not have begun
        return Sending(
            BoundedSender(self._session.app, queue, self._bound, self._stopping, connection=self._connection)
        )

    def _ready(self) -> list[str]:
        """Return the players that learn, have weights, and whose last segment has been sent."""
        now = time.monotonic()
        ready = []
        for name in self._learning:
            sending = self._sending[name]
            if sending.unsent is None and now >= sending.play_at:
                weights = self._host.player(name).weights
                if weights.version >= 0:
                    ready.append(name)
                    continue
                sending.play_at = now + AGAIN_AFTER
                self._defer(name, "its learner has published no weights")
                with contextlib.suppress(redis.RedisError):
                    weights.fetch()
        return ready

    def _play(self, name: str) -> None:
        home, sending = self._host.player(name), self._sending[name]
        sending.play_at = time.monotonic() + AGAIN_AFTER
        try:
            payload = self._host.collect(home, self._actors(), self._lanes)
        except (MatchmakingError, PlayerUnavailable) as error:  # paused, or the first of a league: nothing has failed
            self._defer(name, str(error))
            return
        except ConfigurationError as error:
            sending.failures += 1
            if sending.failures >= FAILURES:
                raise
            logger.error("%s; making the games of %s anew, once", error, name)
            self._host.leave_matches(home)
            return
        except (WarrenError, redis.RedisError) as error:
            if not self._stopping.is_set():
                logger.warning("could not play for %s, trying again: %s", name, error)
            return
        sending.play_at, sending.failures, sending.deferred = 0.0, 0, ""
        self._turns.had(name, payload["trajectory"]["terminated"].size)
        sending.unsent = ({"round": None, **payload},)
        self._send(sending)

    def _defer(self, name: str, why: str) -> None:
        if why != self._sending[name].deferred:
            self._sending[name].deferred = why
            logger.info("player %s: waiting: %s", name, why)

    def _send_what_waits(self) -> None:
        now = time.monotonic()
        for name in self._learning:
            sending = self._sending[name]
            if sending.unsent is not None and now >= sending.again_at:
                self._send(sending)
        self._note()

    def _send(self, sending: Sending) -> None:
        assert sending.unsent is not None
        if sending.sender.offer("learner.learn", sending.unsent):
            payload = sending.unsent[0]
            self._unnoted.append(segment_of(payload))
            sending.unsent, sending.wait = None, FIRST_WAIT
        else:
            sending.again_at = time.monotonic() + sending.wait
            sending.wait = min(2 * sending.wait, LAST_WAIT)

    def _note(self) -> None:
        """Tell the ledger of segments that the broker has confirmed; those it misses now are told with the next."""
        try:
            while self._unnoted:
                self._session.ledger.confirm(self._unnoted[0])
                self._unnoted.pop(0)
        except redis.RedisError as error:
            logger.warning("segments that were sent are not noted yet: %s", error)
