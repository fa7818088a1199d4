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


class SegmentsWaiting:
    """How many segments may wait in the learner's queue: one update's, for as many actors as there are now.

    Each call reads the count, once a second at most. While Redis is away the number before it holds.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._number = session.config.segments_per_update
        self._read_at = 0.0

    def __call__(self) -> int:
        """Segments."""
        if self._session.config.batch_segments is None and time.monotonic() >= self._read_at:
            self._read_at = time.monotonic() + READ_EVERY
            with contextlib.suppress(redis.RedisError):
                self._number = max(1, actors_now(self._session))
        return self._number


def actors_key(session: Session) -> str:
    """Where the number stands."""
    return f"{session.topology.key_prefix}actors"
