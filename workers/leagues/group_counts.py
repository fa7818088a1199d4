"""The number of env runner groups that each actor of a served league decides for, published for the other actors."""

from __future__ import annotations

import logging
import time
from typing import Any

import redis

logger = logging.getLogger(__name__)

SAY_EVERY = 3.0  # s
FORGOTTEN = 10  # s without a message after which an actor counts as gone


class GroupCounts:
    """The counts of all actors, seen from actor number `own`; the keys begin with `prefix`."""

    def __init__(self, client: Any, prefix: str, own: int) -> None:
        self._redis, self._key, self._own = client, f"{prefix}groups", own
        self._say_at = 0.0

    def say(self, count: int) -> None:
        """Tell the other actors, every few seconds, that this one has `count` groups."""
        if time.monotonic() < self._say_at:
            return
        self._say_at = time.monotonic() + SAY_EVERY
        try:
            with self._redis.pipeline() as pipe:
                pipe.sadd(self._key, self._own)
                pipe.set(f"{self._key}:{self._own}", count, ex=FORGOTTEN)
                pipe.execute()
        except redis.RedisError as error:
            logger.warning("how many groups this actor has is not told for a moment: %s", error)

    def fewer(self, count: int) -> int | None:
        """Return the other actor with the fewest groups; None if one more group would give it `count` or more."""
        try:
            actors = sorted(int(name) for name in self._redis.smembers(self._key))
            said = self._redis.mget([f"{self._key}:{actor}" for actor in actors]) if actors else []
        except redis.RedisError:
            return None
        others = [
            (int(n), actor) for n, actor in zip(said, actors, strict=True) if n is not None and actor != self._own
        ]
        fewest, actor = min(others, default=(count, self._own))
        return actor if fewest + 2 <= count else None
