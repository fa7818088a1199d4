"""Which gateway holds which session, where several share an address: Redis knows.

A session lives in the process that it was started in. The kernel deals connections out, so a game that opens a new one
may come to another gateway, which sends it on (status 307) to the address of the one that holds its session.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

logger = logging.getLogger(__name__)

KEPT = 2.0  # times the idle time that a session of a gateway that died is remembered
ANSWER = 2.0  # s within which Redis has to
AWAY = 5.0  # s for which Redis is not asked again once it did not answer


class Neighbours:
    """See sessions.Elsewhere. While Redis is away each gateway knows its own sessions alone."""

    def __init__(self, client: Any, prefix: str, idle: float) -> None:
        """`client`: of redis-py, whose server is asked; `prefix`: of all keys of the run."""
        self.address = ""  # of this gateway
        pool = client.connection_pool
        hurried = {**pool.connection_kwargs, "retry": Retry(NoBackoff(), 1), "socket_timeout": ANSWER}  # games wait
        self._redis = redis.Redis(connection_pool=redis.ConnectionPool(pool.connection_class, **hurried))
        self._prefix = f"{prefix}gateway:"
        self._expires = max(1, int(KEPT * idle))
        self._away_until = 0.0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="neighbours")  # one: what is asked is done in order

    async def claim(self, session: str) -> str | None:
        """See Elsewhere."""
        there = await self._ask(
            lambda: self._redis.set(self._prefix + session, self.address, ex=self._expires, nx=True, get=True)
        )
        return self._other(there)

    async def find(self, session: str) -> str | None:
        """See Elsewhere."""
        return self._other(await self._ask(lambda: self._redis.get(self._prefix + session)))

    def release(self, session: str) -> None:
        """See Elsewhere."""
        self._thread.submit(self._try, lambda: self._redis.delete(self._prefix + session))

    async def settled(self) -> None:
        """See Elsewhere."""
        await self._ask(lambda: None)  # asked in order, so after every release

    async def keep(self, sessions: list[str]) -> None:
        """See Elsewhere."""

        def keep() -> None:
            pipe = self._redis.pipeline(transaction=False)
            for session in sessions:
                pipe.set(self._prefix + session, self.address, ex=self._expires)
            pipe.execute()

        if sessions:
            await self._ask(keep)

    def _other(self, there: bytes | None) -> str | None:
        address = None if there is None else there.decode()
        return None if address == self.address else address

    async def _ask(self, do: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._try, do)

    def _try(self, do: Callable[[], Any]) -> Any:
        """In the thread: what Redis answers, or None while it is away."""
        if time.monotonic() < self._away_until:
            return None
        try:
            return do()
        except redis.RedisError as error:
            self._away_until = time.monotonic() + AWAY
            logger.warning("Redis is away, so other gateways do not know of this one's sessions: %s", error)
            return None
