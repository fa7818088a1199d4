"""Sessions of gateways that share an address, listed in Redis.

A session lives in the process that it was started in. The kernel distributes connections, so a game that opens a new
connection may reach another gateway, which redirects it (status 307) to the gateway that holds its session. Each
gateway holds a lease beside its sessions: when it dies, its sessions are free at once.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from workers.runtime.lease import Lease, held

logger = logging.getLogger(__name__)

KEPT = 2.0  # time for which a session's key stays if its gateway dies, as a multiple of the idle time
LIVE = 4.0  # s of silence after which a gateway on another machine counts as dead; on this one that is seen at once
ANSWER = 2.0  # s within which Redis has to answer
AWAY = 5.0  # s for which Redis is not asked again once it did not answer
CHUNK = 500  # sessions that one call renews

_TAKE_OVER = (
    "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('SET', KEYS[1], ARGV[2], 'EX', ARGV[3]) return 1 end "
    "return 0"
)
_RELEASE = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end return 0"
_KEEP = """
local lost = {}
for place, key in ipairs(KEYS) do
    local holder = redis.call('GET', key)
    if holder and holder ~= ARGV[1] then lost[#lost + 1] = place
    else redis.call('SET', key, ARGV[1], 'EX', ARGV[2]) end
end
return lost
"""


class Neighbours:
    """SessionDirectory in Redis, from `enter` to `leave`. While Redis is away a gateway knows only its own sessions."""

    def __init__(self, client: Any, prefix: str, idle: float) -> None:
        """`client`: a redis-py client of the server to use; `prefix`: of all keys of the run."""
        self.address = ""  # this gateway's
        pool = client.connection_pool
        hurried = {**pool.connection_kwargs, "retry": Retry(NoBackoff(), 1), "socket_timeout": ANSWER}  # games wait
        self._redis = redis.Redis(connection_pool=redis.ConnectionPool(pool.connection_class, **hurried))
        self._prefix = f"{prefix}gateway:"
        self._holder = ""  # the value of a session's key: the address, and a name that no other process has
        self._lease: Lease | None = None
        self._left = threading.Event()
        self._expires = max(1, int(KEPT * idle))
        self._away_until = 0.0
        self._owed: set[str] = set()  # keys to be released; changed by the thread alone
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="neighbours")  # one, so that calls are made in order

    def enter(self, address: str) -> None:
        """Hold sessions from now on; games reach this gateway at `address`."""
        self.address, self._holder = address, f"{address} {secrets.token_hex(8)}"
        self._lease = Lease(self._redis, self._prefix, self._holder, LIVE)
        self._try(self._lease.renew)
        self._lease.hold(self._left, lambda why: None)  # no other process knows the name

    def leave(self) -> None:
        """Give up all sessions of this gateway, which others may then claim. Safe to call twice."""
        if self._left.is_set():
            return
        self._left.set()
        if self._lease is not None:
            self._thread.submit(self._lease.release)
        self._thread.shutdown()

    async def claim(self, session: str) -> str | None:
        """See SessionDirectory."""
        key = self._prefix + session
        self._thread.submit(self._owed.discard, key)  # it opens here anew, even if Redis is away
        address: str | None = await self._ask(lambda: self._claim(key))
        return address

    async def find(self, session: str) -> str | None:
        """See SessionDirectory."""
        address: str | None = await self._ask(lambda: self._other(self._redis.get(self._prefix + session)))
        return address

    def release(self, session: str) -> None:
        """See SessionDirectory."""

        def release() -> None:
            self._owed.add(self._prefix + session)
            self._try(lambda: None)

        self._thread.submit(release)

    async def settled(self) -> None:
        """See SessionDirectory."""
        await self._ask(lambda: None)  # calls are made in order, so this comes after every release

    async def keep(self, sessions: Sequence[str]) -> list[str]:
        """See SessionDirectory."""

        def keep() -> list[str]:
            lost = []
            for first in range(0, len(sessions), CHUNK):
                names = sessions[first : first + CHUNK]
                keys = [self._prefix + name for name in names]
                places = self._redis.eval(_KEEP, len(keys), *keys, self._holder, self._expires)
                lost += [names[place - 1] for place in places]
            return lost

        return await self._ask(keep) or []

    def _claim(self, key: str) -> str | None:
        """Claim the session of `key`; return None, or the address of another live gateway that has it."""
        while not self._redis.set(key, self._holder, ex=self._expires, nx=True):
            if (there := self._redis.get(key)) is None:
                continue
            if (address := self._other(there)) is not None:
                return address
            if self._redis.eval(_TAKE_OVER, 1, key, there, self._holder, self._expires):
                break
        return None

    def _other(self, there: Any) -> str | None:
        """Return the address of the holder `there`, if that is another live gateway; else None."""
        holder = self._holder if there is None else there.decode()
        if holder == self._holder or not held(self._redis, self._prefix, holder):
            return None
        return holder.partition(" ")[0]

    async def _ask(self, do: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._try, do)

    def _try(self, do: Callable[[], Any]) -> Any:
        """Return what Redis answers, or None while it is away; called in the thread."""
        if time.monotonic() < self._away_until:
            return None
        try:
            while self._owed:  # also sessions that ended while Redis was away: others could not claim them for long
                self._redis.eval(_RELEASE, 1, key := next(iter(self._owed)), self._holder)
                self._owed.remove(key)
            return do()
        except redis.RedisError as error:
            self._away_until = time.monotonic() + AWAY
            logger.warning("Redis is away, so other gateways do not know of this one's sessions: %s", error)
            return None
