"""A lease in Redis: of several processes that would do the same work, one does it, and the others are told which.

lease = Lease(redis, "warren.my-run:", "learner of player main")
lease.take(stopping)       # raises ConfigurationError when another process holds it and goes on doing so
lease.hold(ended, lost)    # renewed until `ended`; `lost`: another took it, since this process was silent
lease.release()
living(redis, "warren.my-run:")  # the processes of the run that hold one

All leases of a run are in one index, so that a reader need not scan all of Redis.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis
from celery.utils.log import get_logger
from redis.backoff import NoBackoff
from redis.retry import Retry

from tasks.topology import Topology
from warren import __version__, redis_client
from warren.errors import ConfigurationError, WarrenError

logger = get_logger(__name__)

SECONDS = 15.0  # s that a lease holds after it was last renewed
ANSWER_WITHIN = 4.0  # s, from Redis about a lease
POLL_EVERY = 0.2  # s between tries to take a lease
SAY_EVERY = 60.0  # s between lines of log about a Redis that is away
APART = "#"  # separates the name of shared work from the token of a process that does it
RELEASED_WITHIN = 3.0  # s that the end of a process waits for Redis
_TOKENS: set[str] = set()  # tokens of this process's own leases

# KEYS: lease, index. ARGV: holder, ms, work, a holder that is dead. Sets the lease if it is free, ours or the dead
# holder's, and notes it in the index until it runs out; else returns the holder.
_HOLD = """
local held = redis.call('GET', KEYS[1])
if held and held ~= ARGV[1] and held ~= ARGV[4] then return held end
local time = redis.call('TIME')
local now, lasts = time[1] * 1000 + math.floor(time[2] / 1000), tonumber(ARGV[2])
redis.call('SET', KEYS[1], ARGV[1], 'PX', lasts)
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
redis.call('ZADD', KEYS[2], now + lasts, ARGV[3])
if redis.call('PTTL', KEYS[2]) < lasts then redis.call('PEXPIRE', KEYS[2], lasts) end
return false
"""
_RELEASE = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return end
redis.call('DEL', KEYS[1])
redis.call('ZREM', KEYS[2], ARGV[2])
"""


class Lease:
    """The right to do `work`, a short name; the keys begin with `prefix`.

    `shared`: any number of processes may do this work, each with its own lease. `try_to_take` and `renew` raise
    redis.RedisError.
    """

    def __init__(self, client: Any, prefix: str, work: str, seconds: float = SECONDS, shared: bool = False) -> None:
        token = secrets.token_hex(8)
        _TOKENS.add(token)
        self._redis, self._index, self._work = client, _index(prefix), f"{work}{APART}{token}" if shared else work
        self._key = _key(prefix, self._work)
        self._milliseconds = int(1000 * seconds)
        self._renewing: threading.Thread | None = None
        self.work, self.token = work, token
        me = {"host": socket.gethostname(), "pid": os.getpid(), "space": _space(), "token": token}
        self._me = json.dumps(me | {"release": __version__})

    def take(self, stopping: threading.Event, remedy: str = "") -> bool:
        """Take the lease, waiting until it expires if its holder has died; return False when `stopping` was set.

        Raises ConfigurationError, ending in `remedy`, if its holder goes on renewing it.
        """
        patience, said, say_at = 1.2 * self._milliseconds / 1000.0, False, 0.0
        until = time.monotonic() + patience
        while True:
            try:
                holder = self.try_to_take()
            except redis.RedisError as error:
                until = time.monotonic() + patience  # the holder is unknown
                if time.monotonic() >= say_at:
                    say_at = time.monotonic() + SAY_EVERY
                    logger.warning("%s: waiting for Redis: %s", self._work, error)
            else:
                if not holder:
                    return True
                if time.monotonic() > until:
                    raise ConfigurationError(
                        f"{self._work}: already held by {holder}; {remedy or 'stop that process first'}"
                    )
                if not said:
                    logger.info("%s: waiting to see whether %s is still alive", self._work, holder)
                    said = True
            if stopping.wait(POLL_EVERY):
                return False

    def held_here(self) -> bool:
        """Return whether a living process that this one can see holds the lease. Raises redis.RedisError."""
        holder = self._redis.get(self._key)
        return holder is not None and _read(holder).get("space") == _space() and not _dead(holder)

    def try_to_take(self) -> str:
        """Take the lease if it is free or its holder is known to be dead: return "", else the holder, as text."""
        held = self._hold()
        if held is not None and _dead(held):
            held = self._hold(replaced=held)
        return "" if held is None else _described(held)

    def renew(self) -> bool:
        """Extend the lease, or take it anew if Redis has lost it; return False when another process has it now."""
        return self._hold() is None

    def _hold(self, replaced: bytes = b"") -> bytes | None:
        """Take the lease; return its holder, if that is neither this process nor `replaced`, else None."""
        given = (self._me, self._milliseconds, self._work, replaced)
        held: bytes | None = self._redis.eval(_HOLD, 2, self._key, self._index, *given)
        return held

    def hold(self, until: threading.Event, lost: Callable[[str], None]) -> None:
        """Renew the lease on a thread until `until` is set; call `lost` with the reason if another process took it."""

        def renew() -> None:
            told = False
            while not until.wait(self._milliseconds / 4000.0):
                try:
                    if not self.renew():
                        lost(f"{self.holder()} has become {self._work}, since this process was silent")
                        return
                    told = False
                except redis.RedisError as error:
                    if not told:  # once for as long as Redis is away
                        logger.warning("the lease of %s was not renewed: %s", self._work, error)
                    told = True

        self._renewing = threading.Thread(target=renew, name="lease", daemon=True)
        self._renewing.start()

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Hold the lease, which was taken before, to the end of the block, and release it.

        If another process takes it meanwhile, this process is told to stop, and the block's end raises WarrenError.
        """
        ended, lost = threading.Event(), []

        def stop(why: str) -> None:
            logger.error("%s; this process stops", why)
            lost.append(why)
            os.kill(os.getpid(), signal.SIGTERM)  # the order to stop, for every role

        self.hold(ended, stop)
        try:
            yield
        finally:
            ended.set()
            self.release()
        if lost:
            raise WarrenError(lost[0])

    def release(self) -> None:
        """Free the lease for the next process, if Redis answers within RELEASED_WITHIN; otherwise it runs out.

        A lease that is held is only freed once the event given to `hold` is set.
        """

        def release() -> None:
            if self._renewing is not None:
                self._renewing.join()  # a renewal that is under way would take the lease again
            try:
                self._redis.eval(_RELEASE, 2, self._key, self._index, self._me, self._work)
            except redis.RedisError as error:
                logger.warning("the lease of %s was not given back: %s", self._work, error)

        # On a thread: the look-up of a host name alone may take longer than an ending process has.
        thread = threading.Thread(target=release, name="lease", daemon=True)
        thread.start()
        thread.join(RELEASED_WITHIN)

    def holder(self) -> str:
        """Return the holder, as text."""
        data = self._redis.get(self._key)
        return "nobody" if data is None else _described(data)


def connect(redis_url: str) -> Any:
    """Return a client for leases, with short timeouts: renewing or releasing a lease cannot wait."""
    return redis_client.connect(redis_url, retry=Retry(NoBackoff(), 1), socket_timeout=ANSWER_WITHIN)


@contextmanager
def present(app: Any, topology: Topology, work: str) -> Iterator[None]:
    """Hold a lease of `work`, shared with any number of processes of a Celery app's run, to the end of the block."""
    lease = Lease(connect(app.conf.result_backend), topology.key_prefix, work, shared=True)
    with suppress(redis.RedisError):  # it is taken once Redis is back
        lease.renew()
    with lease.kept():
        yield


def held(client: Any, prefix: str, work: str) -> bool:
    """Return whether a process holds the lease of `work` and is not known to have died. Raises redis.RedisError."""
    holder = client.get(_key(prefix, work))
    return holder is not None and not _dead(holder)


@dataclass(frozen=True)
class Holder:
    """A process that holds a lease: its work in the run, its process and host as text, and the token of the lease."""

    work: str
    where: str
    token: str = ""

    def __str__(self) -> str:
        return f"{self.work} ({self.where})"


def living(client: Any, prefix: str) -> list[Holder]:
    """Return the holders of the run's leases, without those known to have died. Raises redis.RedisError."""
    works = client.zrange(_index(prefix), 0, -1)
    stored = client.mget([_key(prefix, "").encode() + work for work in works]) if works else []
    found = [
        Holder(work.decode(errors="replace").partition(APART)[0], _described(holder), _read(holder).get("token", ""))
        for work, holder in zip(works, stored, strict=True)
        if holder is not None and not _dead(holder)
    ]
    return sorted(found, key=lambda one: one.work)


def leader_key(prefix: str) -> str:
    """Return the Redis key of the lease of a run's leader; it exists while the run's launcher runs."""
    return f"{prefix}leader"


def _key(prefix: str, work: str) -> str:
    return f"{prefix}lease:{work}"


def _index(prefix: str) -> str:
    return f"{prefix}leases"


def _dead(holder: bytes) -> bool:
    """Return whether a holder that this process can see is known to have died: its successor need not wait."""
    found = _read(holder)
    if found.get("space") != _space():
        return False
    try:
        os.kill(found["pid"], 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return bool(found["pid"] == os.getpid() and found["token"] not in _TOKENS)  # an earlier process had the same id


def _read(holder: bytes) -> dict[str, Any]:
    """Return a holder's facts about itself; empty if it is of another version, which may well be alive."""
    try:
        found = json.loads(holder)
        return found if {"host", "pid", "token"} <= found.keys() else {}
    except (ValueError, AttributeError):
        return {}


def _space() -> str:
    """Return the namespace of this process's id: boot and container; a random one if that is unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return secrets.token_hex(8)


def _described(holder: bytes) -> str:
    found = _read(holder)
    if not found:
        return "an unknown process"
    release = found.get("release", __version__)
    other = "" if release == __version__ else f" (of Warren {release})"
    return f"process {found['pid']} on {found['host']}{other}"
