"""Segments of one actor for several learners, each sent once its learner's queue has room for it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import redis
from kombu.exceptions import OperationalError

from tasks.client.bounded_sender import FIRST_WAIT, LAST_WAIT, BoundedSender
from warren.errors import BrokerError
from workers.rollout.sending.handover import LOOK_EVERY, SENDERS
from workers.rollout.sending.numbering import segment_of
from workers.runtime.actor_count import SegmentsWaiting
from workers.runtime.segment_ledger import Segment
from workers.runtime.session import Session

logger = logging.getLogger(__name__)


class Outbox:
    """Segments to be sent: one that finds no room waits here, without holding up those of other players.

        outbox.open(player)
        while outbox.takes(player):
            outbox.put(player, payload)     # numbered, so that one which is sent twice counts once
        outbox.tend(players)                # now and then: tries again what waits
        outbox.close()

    The outbox takes one segment per player, which the caller's thread sends. With `far` servers, sending one takes
    longer than collecting the next: then up to SENDERS threads send, each one segment per player, as long as none of
    the player's was refused.
    """

    def __init__(self, session: Session, far: bool = False) -> None:
        self._session, self._far, self._bound = session, far, SegmentsWaiting(session)
        self._connection = session.app.connection_for_write()
        self._queues: dict[str, Any] = {}
        self._players: frozenset[str] = frozenset()  # players that learn, whose queues exist
        self._ended = threading.Event()
        self._lanes = [] if far else [self._new_lane(self._connection)]
        self._threads: list[threading.Thread] = []
        self._failure: BaseException | None = None

    def __contains__(self, player: str) -> bool:
        return player in self._queues

    def open(self, player: str) -> None:
        """Declare a player's queue, as its learner may not have begun. Raises BrokerError while the broker is away."""
        queue = self._session.topology.learner_queue(player)
        try:
            self._connection.ensure_connection(max_retries=1, interval_start=0)
            queue(self._connection.default_channel).declare()
        except (OperationalError, *self._connection.connection_errors) as error:
            self._connection.close()
            raise BrokerError(f"the broker is away: {error}") from error
        self._queues[player] = queue

    def takes(self, player: str) -> bool:
        """Return whether a segment of the player may be put in. Raises what sending raised."""
        if self._failure is not None:
            raise self._failure
        held = [one for lane in self._lanes if (one := lane.held.get(player)) is not None]
        return len(held) < (SENDERS if self._far else 1) and not any(one.refused for one in held)

    def put(self, player: str, payload: dict[str, Any]) -> None:
        """Send a segment, or keep it until it can be sent; call it only if `takes` is True for the player."""
        self._players |= {player}
        lane = self._lane(player)
        lane.held[player] = _Held(({"round": None, **payload},))
        if self._far:
            lane.given.set()
        else:
            lane.send_due()

    def tend(self, players: Iterable[str]) -> None:
        """Send again the due segments of `players` only: others learn no more, and their queues may be gone."""
        self._players = frozenset(players)
        if not self._far:
            self._lanes[0].send_due()

    def close(self) -> None:
        """End sending, and give up unsent segments."""
        self._ended.set()
        for thread in self._threads:
            thread.join()
        if not self._far:
            self._lanes[0].withdraw()

    def _lane(self, player: str) -> _Lane:
        """Return a lane that has no segment of the player, and as few others as possible."""
        free = [lane for lane in self._lanes if player not in lane.held]
        lane = min(free, key=lambda one: len(one.held), default=None)
        if lane is not None and (not lane.held or len(self._lanes) == SENDERS or not self._far):
            return lane
        lane = self._new_lane(self._session.app.connection_for_write())
        self._lanes.append(lane)
        self._threads.append(threading.Thread(target=self._run, args=(lane,), name="sender", daemon=True))
        self._threads[-1].start()
        return lane

    def _new_lane(self, connection: Any) -> _Lane:
        def sender(player: str) -> BoundedSender:
            return BoundedSender(
                self._session.app, self._queues[player], self._bound, self._ended, connection=connection
            )

        return _Lane(self._session, sender, lambda player: player in self._players)

    def _run(self, lane: _Lane) -> None:
        try:
            while not self._ended.is_set():
                lane.given.clear()
                lane.send_due()
                lane.given.wait(lane.patience())
        except BaseException as error:
            self._failure = self._failure or error
        finally:
            lane.withdraw()


@dataclass
class _Held:
    """A segment that is to be sent."""

    args: tuple[dict[str, Any]]  # arguments of the learn task
    wait: float = FIRST_WAIT  # s until the next try
    again_at: float = 0.0  # monotonic time of the next try
    refused: bool = False  # it found no room


class _Lane:
    """One thread's senders on one connection, and the segment of each player that they are to send."""

    def __init__(self, session: Session, make: Callable[[str], BoundedSender], learns: Callable[[str], bool]) -> None:
        self._session, self._make, self._learns = session, make, learns
        self._senders: dict[str, BoundedSender] = {}
        self._unnoted: list[Segment] = []  # segments that the broker has confirmed and the ledger has not noted
        self.held: dict[str, _Held] = {}
        self.given = threading.Event()  # set when there may be a new segment

    def send_due(self) -> None:
        """Offer due segments to the broker, and note those that it has confirmed in the ledger."""
        for player, held in self._to_send():
            if time.monotonic() >= held.again_at:
                self._offer(player, held)
        self._note()

    def patience(self) -> float:
        """Return the seconds until a segment is due, LOOK_EVERY at most."""
        due = min((held.again_at for _, held in self._to_send()), default=float("inf"))
        return min(max(due - time.monotonic(), 0.0), LOOK_EVERY)

    def _to_send(self) -> list[tuple[str, _Held]]:
        return [one for one in list(self.held.items()) if self._learns(one[0])]

    def withdraw(self) -> None:
        """Give up unsent segments."""
        for sender in self._senders.values():
            sender.withdraw()
        self._note()

    def _offer(self, player: str, held: _Held) -> None:
        if player not in self._senders:
            self._senders[player] = self._make(player)
        if self._senders[player].offer("learner.learn", held.args):
            self._unnoted.append(segment_of(held.args[0]))
            del self.held[player]
        else:
            held.refused, held.again_at = True, time.monotonic() + held.wait
            held.wait = min(2 * held.wait, LAST_WAIT)

    def _note(self) -> None:
        """Note segments that the broker has confirmed in the ledger; those that fail now are noted with the next."""
        try:
            while self._unnoted:
                self._session.ledger.confirm(self._unnoted[0])
                self._unnoted.pop(0)
        except redis.RedisError as error:
            logger.warning("segments that were sent are not noted yet: %s", error)
