"""Retained events: of each event that services subscribe to, the newest payload stays in Redis for later subscribers.

A fanout exchange keeps nothing. Without this, an actor that starts after the learner's first weights, or restarts
between two versions, would have no weights, and a learner that waits for its experience would wait for ever.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import redis
from celery.utils.log import get_logger
from redis.backoff import NoBackoff
from redis.retry import Retry

from tasks.topology import Topology
from warren import redis_client

logger = get_logger(__name__)

TTL = 24 * 3600  # s that a retained payload outlives its last firing
ANSWER_WITHIN = 2.0  # s
LONGEST = 512 << 20  # bytes; Redis keeps no longer value
SUBSCRIBED, FIRED = b"heard", b"fired"  # marks of an event that services subscribe to, and of one that was only fired


class Retained:
    """The events of one run. Safe to use from any thread. While Redis is away events are fired, and that is logged."""

    def __init__(self, app: Any, topology: Topology) -> None:
        self._redis: Any = getattr(app, "warren_redis", None)  # see tasks/testing
        if self._redis is None:
            # One try: firing must not wait for a Redis that is away.
            self._redis = redis_client.connect(
                app.conf.result_backend, retry=Retry(NoBackoff(), 0), socket_connect_timeout=ANSWER_WITHIN
            )
        self._names, self._newest = f"{topology.key_prefix}events", f"{topology.key_prefix}event:"
        self._subscribed: set[str] = set()  # events known to be subscribed to; none is ever taken out

    def subscribe(self, names: Iterable[str]) -> None:
        """Retain the newest of these events from now on. Raises redis.RedisError."""
        entries: Any = dict.fromkeys(names, SUBSCRIBED)
        if entries:
            with self._redis.pipeline(transaction=True) as pipe:
                pipe.hset(self._names, mapping=entries)
                pipe.expire(self._names, TTL)
                pipe.execute()

    def keep(self, name: str, body: bytes, ask: bool = True) -> bool:
        """Retain a packed payload where services subscribe to `name`, before it is fired, so that none misses it.

        Returns False where it was not retained: no service subscribes to it so far, or Redis is away. `ask`: ask Redis
        for subscribers where this process knows of none.
        """
        try:
            if name not in self._subscribed and not (ask and self._has_subscribers(name)):
                return False
            with self._redis.pipeline(transaction=True) as pipe:
                if len(body) <= LONGEST:
                    pipe.set(f"{self._newest}{name}", body, ex=TTL)
                # Written again, so that it neither expires before the payload nor is missing after Redis has lost all.
                pipe.hset(self._names, name, SUBSCRIBED)
                pipe.expire(self._names, TTL)
                pipe.execute()
        except redis.RedisError as error:
            logger.warning("event %r is fired, but not retained for later subscribers: %s", name, error)
            return False
        return True

    def _has_subscribers(self, name: str) -> bool:
        """Return whether Redis knows of subscribers, and enter the name there as that of an event that was fired."""
        with self._redis.pipeline(transaction=True) as pipe:
            pipe.hsetnx(self._names, name, FIRED)
            pipe.expire(self._names, TTL)
            pipe.hget(self._names, name)
            subscribed = bool(pipe.execute()[-1] == SUBSCRIBED)
        if subscribed:
            self._subscribed.add(name)
        return subscribed

    def newest(self, name: str) -> bytes | None:
        """Return the packed payload of the newest event of that name, or None. Raises redis.RedisError."""
        found: Any = self._redis.get(f"{self._newest}{name}")
        return None if found is None else bytes(found)

    def names(self) -> list[str]:
        """Return the names of all events of the run that were fired or subscribed to. Raises redis.RedisError."""
        found: Any = self._redis.hkeys(self._names)
        return sorted(name.decode() for name in found)
