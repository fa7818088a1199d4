"""Retained events: of each event that services hear, the newest payload stays in Redis for who subscribes later.

A fanout exchange forgets. An actor that starts after the learner's first weights, or is restarted between two, would
play without any; and a learner that waits for experience of it would wait for good.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import redis
from celery.utils.log import get_logger
from redis.backoff import NoBackoff
from redis.retry import Retry

from tasks.topology import Topology

logger = get_logger(__name__)

LIVES = 24 * 3600  # s that a retained payload outlives its last firing
ANSWER_WITHIN = 2.0  # s
LONGEST = 512 << 20  # bytes; Redis keeps no longer value
HEARD, FIRED = b"heard", b"fired"


class Retained:
    """The events of one run. Safe to use from any thread. Redis away is no reason not to fire: it is logged."""

    def __init__(self, app: Any, topology: Topology) -> None:
        # One try: who fires must not wait for a Redis that is away.
        self._redis = redis.Redis.from_url(
            app.conf.result_backend, retry=Retry(NoBackoff(), 0), socket_connect_timeout=ANSWER_WITHIN
        )
        self._names, self._newest = f"{topology.key_prefix}events", f"{topology.key_prefix}event:"
        self._heard: set[str] = set()  # names that services hear, as far as is known; none ever ceases to be

    def hear(self, names: Iterable[str]) -> None:
        """From now on the newest of these events is retained. Raises redis.RedisError."""
        entries: Any = dict.fromkeys(names, HEARD)
        if entries:
            with self._redis.pipeline(transaction=True) as pipe:
                pipe.hset(self._names, mapping=entries)
                pipe.expire(self._names, LIVES)
                pipe.execute()

    def keep(self, name: str, body: bytes) -> bool:
        """Retain a packed payload where services hear `name`; to be called before it is fired: nobody misses both.

        False where it was not: nobody hears that event so far, or Redis is away.
        """
        try:
            if name not in self._heard and not self._is_heard(name):
                return False
            with self._redis.pipeline(transaction=True) as pipe:
                if len(body) <= LONGEST:
                    pipe.set(f"{self._newest}{name}", body, ex=LIVES)
                # Again: it must not expire before what it says is retained, nor be missing after Redis lost all.
                pipe.hset(self._names, name, HEARD)
                pipe.expire(self._names, LIVES)
                pipe.execute()
        except redis.RedisError as error:
            logger.warning("event %r is fired, but not retained for those who come later: %s", name, error)
            return False
        return True

    def _is_heard(self, name: str) -> bool:
        """Ask, and enter the name as one that was fired."""
        with self._redis.pipeline(transaction=True) as pipe:
            pipe.hsetnx(self._names, name, FIRED)
            pipe.expire(self._names, LIVES)
            pipe.hget(self._names, name)
            heard = bool(pipe.execute()[-1] == HEARD)
        if heard:
            self._heard.add(name)
        return heard

    def newest(self, name: str) -> bytes | None:
        """The packed payload of the newest event of that name. Raises redis.RedisError."""
        found: Any = self._redis.get(f"{self._newest}{name}")
        return None if found is None else bytes(found)

    def names(self) -> list[str]:
        """Every event of the run that was fired or heard. Raises redis.RedisError."""
        found: Any = self._redis.hkeys(self._names)
        return sorted(name.decode() for name in found)
