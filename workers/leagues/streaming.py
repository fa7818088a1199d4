"""Streaming in a league: an actor plays on, for each learning player in turn, and sends on what it collected.

    Whose turn it is: of the players whose last trajectories have been sent, the one with the fewest decisions so far,
    each counted by its share. A player that is paused, or whose learner is away or slow, costs the others nothing: it
    is passed over, and once it is back no more than a few turns are made up for.

What was collected and finds no room waits here, one segment a player. It is numbered when it is made, so that one which
is sent twice, since the broker went away before it could confirm it, counts once.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import redis
from kombu.exceptions import OperationalError

from tasks.client.bounded_sender import FIRST_WAIT, LAST_WAIT, BoundedSender
from warren.errors import ConfigurationError, MatchmakingError, PlayerUnavailable, WarrenError
from workers.runtime.actor_count import Count, SegmentsWaiting
from workers.runtime.segment_ledger import Segment

if TYPE_CHECKING:
    from workers.leagues.actor import LeagueActorRole

logger = logging.getLogger(__name__)

LOOK_EVERY = 1.0  # s between questions who learns
AGAIN_AFTER = 1.0  # s until a player is played for again that could not be
IDLE = 0.005  # s between checks while nobody can be played for
CREDIT = 4  # turns that a player may be behind the others: what it missed beyond is not made up for
FAILURES = 2  # rollouts in a row that may fail in the user's code before this actor gives up


class Turns:
    """Who plays next: whoever has had the fewest decisions by its share (stride scheduling). Pure.

    `shares`: player -> its share of the decisions, 1 for others. `credit`: decisions by which a player may lag behind.
    """

    def __init__(self, shares: Mapping[str, float], credit: float) -> None:
        self._shares, self._credit = shares, credit
        self._had: dict[str, float] = {}

    def next(self, players: Sequence[str]) -> str:
        """Of `players`, the first with the fewest."""
        floor = max(self._had.values(), default=0.0) - self._credit
        for player in players:
            self._had[player] = max(self._had.get(player, floor), floor)
        return min(players, key=self._had.__getitem__)

    def had(self, player: str, decisions: int) -> None:
        """It was played for."""
        self._had[player] += decisions / self._shares.get(player, 1.0)

    def keep(self, players: Iterable[str]) -> None:
        """Forget all others, who learn no more."""
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


class LeagueStream:
    """What the sampling thread of `actor` does."""

    def __init__(self, actor: LeagueActorRole) -> None:
        self._actor, self._session, self._stopping = actor, actor.session, actor.stopping
        self._bound, self._actors = SegmentsWaiting(actor.session), Count(actor.session)
        # As large as the share of an update that each of its segments has, however many actors there are now.
        self._lanes = -(-actor.league.lanes // actor.config.segments_per_update)
        shares = {name: float(player.updates) for name, player in actor.league.players.items()}
        self._turns = Turns(shares, CREDIT * self._lanes * actor.league.unroll_length)
        self._connection = actor.session.app.connection_for_write()
        self._sending: dict[str, Sending] = {}
        self._learning: list[str] = []  # who is to be played for, as the league said last
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
        """Ask the league who learns, every second."""
        if time.monotonic() < self._look_at:
            return
        try:
            self._learning = self._actor.client.learning()
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
        self._actor.players[name]  # from now on its weights are followed
        queue = self._session.topology.learner_queue(name)
        self._connection.ensure_connection(max_retries=1, interval_start=0)
        queue(self._connection.default_channel).declare()  # its learner may not have begun
        return Sending(
            BoundedSender(self._session.app, queue, self._bound, self._stopping, connection=self._connection)
        )

    def _ready(self) -> list[str]:
        """Players that learn, have weights, and whose last segment has been sent."""
        now = time.monotonic()
        ready = []
        for name in self._learning:
            sending = self._sending[name]
            if sending.unsent is None and now >= sending.play_at:
                weights = self._actor.players[name].weights
                if weights.version >= 0:
                    ready.append(name)
                    continue
                sending.play_at = now + AGAIN_AFTER
                self._defer(name, "its learner has published no weights")
                with contextlib.suppress(redis.RedisError):
                    weights.fetch()
        return ready

    def _play(self, name: str) -> None:
        home, sending = self._actor.players[name], self._sending[name]
        sending.play_at = time.monotonic() + AGAIN_AFTER
        try:
            payload = self._actor.collect(home, self._actors(), self._lanes)
        except (MatchmakingError, PlayerUnavailable) as error:  # paused, or the first of a league: nothing has failed
            self._defer(name, str(error))
            return
        except ConfigurationError as error:
            sending.failures += 1
            if sending.failures >= FAILURES:
                raise
            logger.error("%s; making the games of %s anew, once", error, name)
            self._actor.leave_matches(home)
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
            self._unnoted.append(Segment(payload["source"], payload["number"], payload["steps"]))
            sending.unsent, sending.wait = None, FIRST_WAIT
        else:
            sending.again_at = time.monotonic() + sending.wait
            sending.wait = min(2 * sending.wait, LAST_WAIT)

    def _note(self) -> None:
        """Tell the ledger what the broker has confirmed; what it could not be told of, with the next."""
        try:
            while self._unnoted:
                self._session.ledger.confirm(self._unnoted[0])
                self._unnoted.pop(0)
        except redis.RedisError as error:
            logger.warning("segments that were sent are not noted yet: %s", error)
