"""The present numbers of actors and env runners: the launcher writes them, rounds and senders read them."""

from __future__ import annotations

import contextlib
import time

import redis

from workers.runtime.session import Session

READ_EVERY = 1.0  # s for which a count that was read is used


def actors_now(session: Session) -> int:
    """Return how many actors a round asks: as configured, or as changed since. Raises redis.RedisError."""
    return count_now(session, "actors")


def count_now(session: Session, setting: str) -> int:
    """Return the count that `setting` names, as configured or as changed since. Raises redis.RedisError."""
    return int(session.redis.get(count_key(session, setting)) or getattr(session.config, setting))


class Count:
    """A count, read once per second at most; while Redis is away the last number holds."""

    def __init__(self, session: Session, setting: str = "actors") -> None:
        self._session, self._setting = session, setting
        self._number = int(getattr(session.config, setting))
        self._read_at = 0.0

    def __call__(self) -> int:
        """Return the count, at least 1."""
        if time.monotonic() >= self._read_at:
            self._read_at = time.monotonic() + READ_EVERY
            with contextlib.suppress(redis.RedisError):
                self._number = max(1, count_now(self._session, self._setting))
        return self._number


class SegmentsWaiting:
    """The number of segments that may wait in a learner's queue: those of its next update.

    It is batch_segments, if that is set, else the number of processes that play now. A segment behind these would be
    even older when its turn comes.
    """

    def __init__(self, session: Session) -> None:
        self._configured = session.config.batch_segments
        self._actors = Count(session)
        players = session.config.players
        self._players = self._actors if players == "actors" else Count(session, players)

    def __call__(self) -> int:
        """Return the number of segments."""
        return self._players() if self._configured is None else self._configured

    def share(self) -> float:
        """Return how many of these segments are one actor's."""
        return self() / self._actors()


def count_key(session: Session, setting: str) -> str:
    """Return the Redis key of the count that `setting` names."""
    return f"{session.topology.key_prefix}{setting}"
