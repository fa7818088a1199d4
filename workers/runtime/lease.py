"""A lease in Redis: of several processes that would do the same work, one does it, and the others are told who.

lease = Lease(redis, "warren.my-run:", "learner of player main")
lease.take(stopping)       # raises ConfigurationError when another process holds it and goes on doing so
lease.hold(ended, lost)    # renewed until `ended`; `lost`: another took it, since this process was silent
lease.release()
living(redis, "warren.my-run:")  # the processes of the run that hold one
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis
from celery.utils.log import get_logger

from warren.errors import ConfigurationError

logger = get_logger(__name__)

SECONDS = 15.0  # s that a lease holds after it was last renewed
POLL_EVERY = 0.2  # s between tries to get one
_TOKENS: set[str] = set()  # of this process's own leases

_RENEW = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('PEXPIRE', KEYS[1], ARGV[2]) return 1 end return 0"
_REPLACE = (
    "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3]) return 1 end "
    "return 0"
)
_RELEASE = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end return 0"


class Lease:
    """The right to be `work`, a short name; the key begins with `prefix`. `take`, `renew` raise redis.RedisError."""

    def __init__(self, client: Any, prefix: str, work: str, seconds: float = SECONDS) -> None:
        self._redis, self._key, self._work = client, _key(prefix, work), work
        self._milliseconds = int(1000 * seconds)
        token = secrets.token_hex(8)
        _TOKENS.add(token)
        me = {"host": socket.gethostname(), "pid": os.getpid(), "space": _space(), "token": token}
        self._me = json.dumps(me)

    def take(self, stopping: threading.Event, remedy: str = "") -> bool:
        """Get the lease; one whose holder has died is waited out. False when `stopping` was set meanwhile.

        Raises ConfigurationError, ending in `remedy`, for a holder that renews it.
        """
        until, said = time.monotonic() + 1.2 * self._milliseconds / 1000.0, False
        while not self._redis.set(self._key, self._me, nx=True, px=self._milliseconds):
            holder = self._redis.get(self._key)
            if holder is None:
                continue
            if _dead(holder) and self._redis.eval(_REPLACE, 1, self._key, holder, self._me, self._milliseconds):
                break
            who = _described(holder)
            if time.monotonic() > until:
                raise ConfigurationError(f"{self._work}: {who} is that already; {remedy or 'stop that one first'}")
            if not said:
                logger.info("%s: waiting whether %s is still there", self._work, who)
                said = True
            if stopping.wait(POLL_EVERY):
                return False
        return True

    def renew(self) -> bool:
        """Hold it for longer; taken anew where Redis has lost it. False when another process has it now."""
        if self._redis.eval(_RENEW, 1, self._key, self._me, self._milliseconds):
            return True
        return bool(self._redis.set(self._key, self._me, nx=True, px=self._milliseconds))

    def hold(self, until: threading.Event, lost: Callable[[str], None]) -> None:
        """Renew it from a thread of its own until `until` is set; `lost` is told who has taken it meanwhile."""

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

        threading.Thread(target=renew, name="lease", daemon=True).start()

    def release(self) -> None:
        """Let the next have it at once, if Redis can be asked to; otherwise it runs out."""
        try:
            self._redis.eval(_RELEASE, 1, self._key, self._me)
        except redis.RedisError as error:
            logger.warning("the lease of %s was not given back: %s", self._work, error)

    def holder(self) -> str:
        """Who has it, as text."""
        data = self._redis.get(self._key)
        return "nobody" if data is None else _described(data)


def held(client: Any, prefix: str, work: str) -> bool:
    """Return whether a process holds the lease of `work` and is not known to have died. Raises redis.RedisError."""
    holder = client.get(_key(prefix, work))
    return holder is not None and not _dead(holder)


@dataclass(frozen=True)
class Holder:
    """A process that holds a lease: its work in the run, and where it runs, for a person."""

    work: str
    where: str

    def __str__(self) -> str:
        return f"{self.work} ({self.where})"


def living(client: Any, prefix: str) -> list[Holder]:
    """Return who holds a lease of the run, without those known to have died. Raises redis.RedisError."""
    return living_of(client, prefix, client.scan_iter(match=f"{_key(prefix, '')}*", count=10_000))


def living_of(client: Any, prefix: str, keys: Iterable[bytes]) -> list[Holder]:
    """Return who holds the leases `keys`, which begin with `prefix`, as `living` does."""
    begins, found = len(_key(prefix, "")), sorted(set(keys))
    stored = client.mget(found) if found else []
    return [
        Holder(key.decode(errors="replace")[begins:], *where)
        for key, holder in zip(found, stored, strict=True)
        if holder is not None and (where := _where(holder))
    ]


def _where(holder: bytes) -> tuple[str, ...]:
    """Return where a holder runs; nothing for one that is known to have died."""
    try:
        return () if _dead(holder) else (_described(holder),)
    except (ValueError, TypeError, KeyError, AttributeError):  # of another version: it may well live
        return ("an unknown process",)


def _key(prefix: str, work: str) -> str:
    return f"{prefix}lease:{work}"


def _dead(holder: bytes) -> bool:
    """Return whether a holder that this process can see is known to have died: its successor need not wait."""
    found = json.loads(holder)
    if found.get("space") != _space():
        return False
    try:
        os.kill(found["pid"], 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return bool(found["pid"] == os.getpid() and found["token"] not in _TOKENS)  # an earlier process of the same id


def _space() -> str:
    """What process ids here are of: this boot of this machine, this container; where that is unknown, nobody's."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return secrets.token_hex(8)


def _described(holder: bytes) -> str:
    found = json.loads(holder)
    return f"process {found['pid']} on {found['host']}"
