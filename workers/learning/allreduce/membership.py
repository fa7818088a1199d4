"""Heartbeats of a player's ranks in Redis, and the generations of rings that the ranks form.

Each rank sends a heartbeat every half second; a rank that was silent for SILENT s counts as dead. On a busy machine a
living rank may be silent for longer, so other ranks of the same machine, which see that its process runs, send its
heartbeat for it.

Each ring belongs to one generation: a number, its ranks, a backend, and a meeting place. When a rank is lost or another
one comes, the living ranks wait for the next generation, which the lowest of them forms once all are waiting.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis
from celery.utils.log import get_logger

from warren.errors import ConfigurationError
from workers.learning.allreduce.ring import address_towards

logger = get_logger(__name__)

SILENT = 3.5  # s without a heartbeat after which a rank counts as dead
BEAT_EVERY = 0.5  # s
LOOK_EVERY = 0.05  # s between checks for the next generation while waiting
LOG_EVERY = 10.0  # s between log messages while waiting

# KEYS: times of heartbeats (sorted set), members as JSON (hash), generation. ARGV: token, own JSON, ms until silent
# ranks are dead, tokens of others that are seen to run. Returns the JSON of living members and the newest generation.
_BEAT = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
for index = 4, #ARGV do
  if redis.call('HEXISTS', KEYS[2], ARGV[index]) == 1 then redis.call('ZADD', KEYS[1], now, ARGV[index]) end
end
for _, gone in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[3])) do
  redis.call('ZREM', KEYS[1], gone)
  redis.call('HDEL', KEYS[2], gone)
end
return {redis.call('HVALS', KEYS[2]), redis.call('GET', KEYS[3]) or ''}
"""
_FORM = """
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2])
return 1
"""


@dataclass(frozen=True)
class Generation:
    """One ring. `members`: tokens of its ranks, in their order; `address` and `port`: of the meeting place."""

    number: int
    members: tuple[str, ...]
    backend: str
    address: str
    port: int


@dataclass(frozen=True)
class Member:
    """A rank as it describes itself to the others.

    `machine`: equal for ranks on the same machine; `waits`: it waits for the next generation; `apart`: its backend can
    connect machines; `settings`: those that must be the same on all ranks.
    """

    token: str
    learner: int
    machine: str
    process: int
    address: str
    backend: str
    waits: bool
    apart: bool = True
    settings: Mapping[str, Any] = field(default_factory=dict)


Form = Callable[[str, int, str], int]  # backend, size, address to listen at -> port: opens the meeting place


class Membership:
    """The membership of this process among the ranks.

    `prefix`: that of the keys. `backend`: the one to use, "horovod" only if it is installed. `server`: the address of
    Redis, by which this machine finds its own address for others. `settings`: name -> value that must be the same on
    all ranks; a rank with another value is refused. `apart`: the backend can connect machines.
    """

    def __init__(
        self,
        client: Any,
        prefix: str,
        learner: int,
        backend: str,
        server: str,
        settings: Mapping[str, Any] = {},
        apart: bool = True,
    ) -> None:
        self._redis = client
        self._keys = [f"{prefix}{name}" for name in ("beats", "ranks", "generation")]
        self.token = f"{learner}-{secrets.token_hex(4)}"
        self._me = Member(
            self.token, learner, _machine(), os.getpid(), address_towards([server]), backend, True, apart, settings
        )
        self._living: dict[str, Member] = {}
        self._newest = ""  # the newest generation, as the text in Redis
        self.generation: Generation | None = None  # the generation of this process
        self._lock = threading.Lock()
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Begin to send heartbeats. Raises redis.RedisError; ConfigurationError if `settings` differ from others'."""
        # A learner's number belongs to one process: an earlier process with this number is dead.
        for token in self._redis.hkeys(self._keys[1]):
            if token.decode().partition("-")[0] == str(self._me.learner):
                self._redis.hdel(self._keys[1], token)
                self._redis.zrem(self._keys[0], token)
        self._beat()
        self._compare(_read(self._newest))
        self._thread.start()

    def leave(self) -> None:
        """Stop the heartbeats and tell the others at once."""
        self._left.set()
        try:
            # The lock lets a heartbeat under way end first: it would enter this rank once more.
            with self._lock, self._redis.pipeline(transaction=True) as pipe:
                pipe.zrem(self._keys[0], self.token)
                pipe.hdel(self._keys[1], self.token)
                pipe.execute()
        except redis.RedisError as error:
            logger.warning("the other ranks were not told that this one leaves: %s", error)

    def lost(self) -> str:
        """Return which ranks of this generation are gone, as text; "" while all are there."""
        if self.generation is None:
            return ""
        newest = _read(self._newest)
        if newest is not None and newest.number > self.generation.number:
            return "the others have gone on without this rank, since it was silent"
        gone = [self._name(token) for token in self.generation.members if token not in self._living]
        return f"{' and '.join(gone)} did not answer for {SILENT:g} s, or left" if gone else ""

    def joining(self) -> bool:
        """Return whether a living rank is not in this generation."""
        members = self.generation.members if self.generation is not None else ()
        return any(token not in members for token in self._living)

    def next(self, expected: int, patience: float, form: Form, stopping: threading.Event) -> Generation | None:
        """Wait for the next generation with this process in it; return None when `stopping` was set meanwhile.

        The very first generation waits `patience` s for `expected` ranks, later ones for nobody. Before this process's
        first generation, raises ConfigurationError if `settings` differ from the others'.
        """
        before = self.generation.number if self.generation is not None else 0
        self.generation = None
        self._say(waits=True)
        began = said = time.monotonic()
        while not stopping.wait(LOOK_EVERY):
            try:
                self._beat()
                newest = _read(self._newest)
                if not before:
                    self._compare(newest)
                if newest is not None and newest.number > before and self.token in newest.members:
                    if self._living.keys() >= set(newest.members):
                        self.generation = newest
                        self._say(waits=False)
                        return newest
                    before = newest.number  # this generation lost a rank before it began
                first = newest is None
                complete = len(self._living) >= expected or time.monotonic() - began > patience
                if self._is_lowest() and (complete or not first) and all(one.waits for one in self._living.values()):
                    self._form(newest, form)
            except redis.RedisError as error:
                logger.warning("the ranks cannot be formed while Redis is away: %s", error)
            if time.monotonic() - said > LOG_EVERY:
                said = time.monotonic()
                busy = [self._name(one.token) for one in self._living.values() if not one.waits]
                what = f"{' and '.join(busy)} to come to an end of an update" if busy else "the other ranks"
                logger.info("waiting for %s: %d of %d are here", what, len(self._living), expected)
        return None

    def _compare(self, newest: Generation | None) -> None:
        """Raise if our settings differ from those of a rank that trains already, or a lower one that starts too."""
        members = newest.members if newest is not None else ()
        for other in self._living.values():
            trains = not other.waits or (other.token in members and self.token not in members)
            if not trains and other.learner >= self._me.learner:
                continue
            if problems := list(_differences(self._me, other)):
                self.leave()
                raise ConfigurationError(problems)

    def _is_lowest(self) -> bool:
        return min(self._living.values(), key=lambda one: (one.learner, one.token)).token == self.token

    def _form(self, newest: Generation | None, form: Form) -> None:
        ranks = sorted(self._living.values(), key=lambda one: (one.learner, one.token))
        elsewhere = [one.address for one in ranks if one.machine != self._me.machine]
        alike = len({one.backend for one in ranks}) == 1 and (not elsewhere or all(one.apart for one in ranks))
        backend = self._me.backend if alike else "torch"
        if backend != self._me.backend:
            where = " of `make horovod`, as learners on several machines need" if elsewhere else ""
            logger.warning("the ring is by torch's gloo: not all learners have the Horovod%s", where)
        address = address_towards(elsewhere)
        generation = Generation(
            newest.number + 1 if newest is not None else 1,
            tuple(one.token for one in ranks),
            backend,
            address,
            form(backend, len(ranks), address) if len(ranks) > 1 else 0,
        )
        text = json.dumps(vars(generation))
        if self._redis.eval(_FORM, 1, self._keys[2], self._newest, text):
            self._newest = text

    def here(self, generation: Generation) -> str:
        """Return this machine's address for the other ranks of a generation: the one towards their meeting place.

        The addresses in `Member` will not do: a rank on the machine of Redis gives a loopback address there.
        """
        others = [self._living[token] for token in generation.members if token in self._living]
        elsewhere = any(one.machine != self._me.machine for one in others)
        return address_towards([generation.address] if elsewhere else [])

    def _say(self, waits: bool) -> None:
        self._me = Member(**{**vars(self._me), "waits": waits})
        with contextlib.suppress(redis.RedisError):  # the next heartbeat tells it
            self._beat()

    def _beat(self) -> None:
        with self._lock:
            said = json.dumps(vars(self._me))
            if self._left.is_set():
                return
            beside = [one for one in self._living.values() if one.token != self.token]
            run = [one.token for one in beside if one.machine == self._me.machine and _runs(one.process)]
            found, newest = self._redis.eval(_BEAT, 3, *self._keys, self.token, said, int(1000 * SILENT), *run)
            members = [Member(**json.loads(text)) for text in found]
            self._living = {one.token: one for one in members if not self._has_died(one)}
            self._newest = newest.decode()

    def _has_died(self, member: Member) -> bool:
        """Return whether the process is known to have ended; only processes of this machine can be seen."""
        if member.machine != self._me.machine:
            return False
        try:
            os.kill(member.process, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass
        return False

    def _run(self) -> None:
        while not self._left.wait(BEAT_EVERY):
            try:
                self._beat()
            except redis.RedisError as error:  # no rank counts as dead: none can send a heartbeat
                logger.debug("no heartbeat: %s", error)

    def _name(self, token: str) -> str:
        return f"learner {token.partition('-')[0]}"


def _differences(mine: Member, other: Member) -> Iterator[str]:
    for name, value in mine.settings.items():
        theirs = other.settings.get(name)
        if theirs != value:
            yield (
                f"{name}: learner {mine.learner} was started with {name}={value}, but learner {other.learner} of this "
                f"run with {name}={theirs}, and all must have the same; start it with {name}={theirs}"
            )


def _read(text: str) -> Generation | None:
    if not text:
        return None
    found = json.loads(text)
    return Generation(**{**found, "members": tuple(found["members"])})


def _runs(process: int) -> bool:
    """Return whether a process of this machine runs; False if it is suspended, a zombie or gone."""
    try:
        return Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] not in "TtZXx"
    except (OSError, IndexError):
        return False


def _machine() -> str:
    """Return a name of this machine's boot, network namespace and process namespace."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        return f"{boot} {Path('/proc/self/ns/net').readlink()} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return secrets.token_hex(8)
