"""The leases of a run's launchers in Redis: they hold the leader, the hosts, their readiness and the run's end.

When a launcher is killed, its lease expires LEASE s later. A thread renews the lease from the moment it is taken,
however long the launcher is busy with stopping processes or removing the run. Each lease holds a token of its launcher,
and `renew` fails with any other token. So a launcher that was away for longer than LEASE (suspended, for example) finds
its place taken, and no longer touches the run. Code that ends or removes a run renews the lease first.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from tasks.topology import Topology
from warren import redis_client
from warren.errors import ConfigurationError, WarrenError
from workers.runtime.lease import SECONDS, Holder, leader_key, living
from workers.runtime.run_settings import card_key, read_card

ENDED = "run-ended"  # the event that the leader fires last; its payload is the exit status
LEASE = 12.0  # s for which a lease holds; it is renewed every second, and by a thread
NAMED = 4  # most processes that a message names
DAY = 24 * 3600
ANSWER_WITHIN = 4.0  # s; the launcher also supervises processes, and must not wait long for Redis
TOKEN_LENGTH = 16

# KEYS: lease, last token, index of hosts. ARGV: token, text, ms, "1" to take a place or "0" to renew it, name of a
# following host or "". Sets the lease if it is free or ours; else returns its value.
_RENEW = """
local held = redis.call('GET', KEYS[1])
if held and string.sub(held, 1, 16) ~= ARGV[1] then return held end
local last = redis.call('GET', KEYS[2])
if last and last ~= ARGV[1] and ARGV[4] == '0' then return last end
redis.call('SET', KEYS[2], ARGV[1])
redis.call('SET', KEYS[1], ARGV[1] .. ARGV[2], 'PX', ARGV[3])
if ARGV[5] ~= '' then redis.call('SADD', KEYS[3], ARGV[5]) end
return false
"""
# KEYS, ARGV: as above. Extends a lease of ours without changing its text; takes an expired one as above.
_EXTEND = (
    """
local mine = redis.call('GET', KEYS[1])
if mine and string.sub(mine, 1, 16) == ARGV[1] then
    redis.call('PEXPIRE', KEYS[1], ARGV[3])
    return false
end
"""
    + _RENEW
)


class Superseded(WarrenError):
    """Raised when another launcher has taken this one's place: this one must no longer touch the run."""


@dataclass(frozen=True)
class Presence:
    """The state of one launcher, as the others read it.

    `ready`: all services of its share are served; of the leader: those of the whole run, so that phase 1 may begin.
    `left`: processes of phase 1 in its share that are not done. `failed`: why it gave up. Of the leader only: `open`:
    the run can be joined; `status`: the exit status, once the run has ended; `update`: s of a learner's update.
    """

    host: str
    open: bool = False
    ready: bool = False
    left: int = 0
    failed: str = ""
    status: int | None = None
    update: float = 0.0
    machine: str = field(default_factory=socket.gethostname)
    pid: int = field(default_factory=os.getpid)
    token: str = ""

    @property
    def where(self) -> str:
        """Return process and machine as text."""
        return f"process {self.pid} on {self.machine}"

    @classmethod
    def read(cls, stored: bytes | None) -> Presence | None:
        """Read the value of a lease; return None for an invalid one."""
        try:
            text = (stored or b"").decode()
            given = json.loads(text[TOKEN_LENGTH:])
            known = {one.name: given[one.name] for one in fields(cls) if one.name in given}
            presence = cls(**{**known, "token": text[:TOKEN_LENGTH]})
            presence._check()
        except (ValueError, TypeError, KeyError):
            return None
        return presence

    def _check(self) -> None:
        texts = (self.host, self.failed, self.machine)
        numbers = (self.left, self.pid, 0 if self.status is None else self.status)
        if not isinstance(self.update, (int, float)):
            raise TypeError("no presence")
        if not all(isinstance(text, str) for text in texts) or not all(type(number) is int for number in numbers):
            raise TypeError("no presence")


class Membership:
    """The leases of one run's launchers, and the processes that serve. Its methods raise redis.RedisError."""

    def __init__(self, redis_url: str, topology: Topology) -> None:
        self._redis = redis_client.connect(
            redis_url, retry=Retry(ConstantBackoff(0.2), 1), socket_timeout=ANSWER_WITHIN
        )
        self._run, self._prefix = topology.run, topology.key_prefix
        self._hosts = f"{self._prefix}hosts"
        self.token = secrets.token_hex(TOKEN_LENGTH // 2)
        self._renew, self._extend = self._redis.register_script(_RENEW), self._redis.register_script(_EXTEND)
        self._said: tuple[bool, Presence] | None = None  # the state in the lease
        self._resting = threading.Event()
        self._thread: threading.Thread | None = None

    def take(self, leader: bool, presence: Presence) -> None:
        """Take a place. Raises ConfigurationError when another process holds it."""
        self._said = leader, presence
        held = self._set(leader, presence, first=True)
        if held is not None:
            other = Presence.read(held)
            by = f" by {other.where}" if other else ""
            raise ConfigurationError(
                f"run {self._run} is led already{by}; name another with run=NAME"
                if leader
                else f"host {presence.host} of run {self._run} is started already{by}; use another name for this one"
            )

    def renew(self, leader: bool, presence: Presence) -> None:
        """Renew the place and publish this launcher's state. Raises Superseded if another launcher has the place."""
        self._said = leader, presence  # before it is sent, so that the thread never sends an older state
        held = self._set(leader, presence, first=False)
        if held is not None:
            other = Presence.read(held)
            who = other.where if other else "another launcher"
            raise Superseded(
                f"{who} has taken this one's place as {presence.host} of run {self._run}, since this one was silent "
                f"for {LEASE:g} s; the run is left to that one"
            )

    def hold(self) -> None:
        """Start a thread that renews the taken place until `rest` or `leave`; only `renew` raises Superseded."""
        self._resting.clear()
        self._thread = threading.Thread(target=self._keep, name="launcher's lease", daemon=True)
        self._thread.start()

    def rest(self) -> None:
        """Stop the thread, so that the place expires. Idempotent."""
        self._resting.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _keep(self) -> None:
        while not self._resting.wait(LEASE / 4.0):
            try:
                assert self._said is not None, "a place is taken first"
                if self._set(*self._said, first=False, script=self._extend) is not None:
                    return  # the launcher's own `renew` reports it
            except redis.RedisError:
                continue  # the launcher reports that Redis is away

    def leave(self, leader: bool, host: str) -> None:
        """Give the place up."""
        self.rest()  # or the thread would take it again
        key = self._key(leader, host)
        held = self._redis.get(key)
        if isinstance(held, bytes) and held[:TOKEN_LENGTH].decode(errors="replace") == self.token:
            self._redis.delete(key, f"{key}:last")
            if not leader:
                self._redis.srem(self._hosts, host)

    def living(self) -> list[Holder]:
        """Return the roles of the run that hold a lease; launchers are not among them."""
        return living(self._redis, self._prefix)

    def leader(self) -> Presence | None:
        """Return the state of the leader, or None."""
        return self._read(self._key(True, ""))

    def hosts(self) -> dict[str, Presence]:
        """Return host -> last state, for hosts that joined."""
        names: Any = self._redis.smembers(self._hosts)
        stored: Any = self._redis.mget([self._key(False, name.decode()) for name in sorted(names)]) if names else []
        found = [Presence.read(one) for one in stored]
        return {presence.host: presence for presence in found if presence is not None}

    def post_card(self, card: Mapping[str, object]) -> None:
        """Store the facts for hosts that join; they stay until the run is removed."""
        self._redis.set(card_key(self._prefix), json.dumps(dict(card)))

    def card(self) -> dict[str, Any]:
        """Return the facts that the leader has stored; empty if there are none."""
        return read_card(self._redis.get(card_key(self._prefix)))

    def serves(self, process: str) -> None:
        """Record that the process of that name serves."""
        self._redis.sadd(f"{self._prefix}ready", process)
        self._redis.expire(f"{self._prefix}ready", DAY)

    def serving(self) -> set[str]:
        """Return the names of the processes that serve."""
        found: Any = self._redis.smembers(f"{self._prefix}ready")
        return {name.decode(errors="replace") for name in found}

    @property
    def kept(self) -> frozenset[str]:
        """Return the keys of the leader's place, which are deleted last when a run is removed."""
        key = self._key(True, "")
        return frozenset({key, f"{key}:last"})

    def _set(self, leader: bool, presence: Presence, first: bool, script: Any = None) -> bytes | None:
        key, text = self._key(leader, presence.host), json.dumps(asdict(replace(presence, token="")))
        follows = "" if leader else presence.host
        arguments: list[str | int] = [self.token, text, int(LEASE * 1000), int(first), follows]
        held: Any = (script or self._renew)(keys=[key, f"{key}:last", self._hosts], args=arguments)
        return held if isinstance(held, bytes) else None

    def _key(self, leader: bool, host: str) -> str:
        return leader_key(self._prefix) if leader else f"{self._prefix}host:{host}"

    def _read(self, key: Any) -> Presence | None:
        stored: Any = self._redis.get(key)
        return Presence.read(stored)


def still_live(run: str, holders: Sequence[Holder]) -> str:
    """Return the beginning of a sentence: these processes of the run are alive, and how to end them."""
    return (
        f"{run} is running: {named(holders)}; end these processes where they were started (docker compose stop, "
        "docker stack rm, kubectl delete, or SIGTERM to each; a killed one of another machine or container counts "
        f"for {SECONDS:g} s)"
    )


def named(holders: Sequence[Holder]) -> str:
    """Return the processes as text, the first NAMED of them by name."""
    more = [f"{len(holders) - NAMED} more"] if len(holders) > NAMED else []
    return ", ".join([*map(str, holders[:NAMED]), *more])
