"""How many actors a run has at the moment: the launcher writes it, the learner's next round reads it."""

from __future__ import annotations

import contextlib
import time

import redis

from workers.runtime.session import Session

READ_EVERY = 1.0  # s for which the count that was read last holds


def actors_now(session: Session) -> int:
    """How many actors a round is to ask: as configured, or as changed since. Raises redis.RedisError."""
    return int(session.redis.get(actors_key(session)) or session.config.actors)


class ActorCount:
    """How many actors there are. Read once a second at most; while Redis is away the number before holds."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._number = session.config.actors
        self._read_at = 0.0

    def __call__(self) -> int:
        """Actors, 1 at least."""
        if time.monotonic() >= self._read_at:
            self._read_at = time.monotonic() + READ_EVERY
            with contextlib.suppress(redis.RedisError):
                self._number = max(1, actors_now(self._session))
        return self._number


class SegmentsWaiting:
    """How many segments may wait in a learner's queue: those of its next update, for as many actors as there are now.

    What waits behind them would be older still when its turn comes.
    """

    def __init__(self, session: Session) -> None:
        self._configured = session.config.batch_segments
        self._actors = ActorCount(session)

    def __call__(self) -> int:
        """Segments."""
        return self._actors() if self._configured is None else self._configured

    def share(self) -> float:
        """Segments of one actor among those."""
        return self() / self._actors()


def actors_key(session: Session) -> str:
    """Where the number stands."""
    return f"{session.topology.key_prefix}actors"
