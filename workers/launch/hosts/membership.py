"""Who leads a run, which hosts take part, who is ready, how it ended: leases in Redis, one a launcher.

A launcher that is killed is missed when its lease has run out, LEASE s later. A thread of its own renews the lease
from its taking on, however long the launcher is busy with stopping processes or removing the run. A launcher that was
away for longer (suspended, say) finds its place taken and touches nothing of the run any more: every lease holds a
token of its launcher's own, and `renew` fails for any other. What ends or removes a run renews the lease first.
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
NAMED = 4  # processes that a message names at most
DAY = 24 * 3600
ANSWER_WITHIN = 4.0  # s; who renews also looks after processes, and must not wait for Redis for long
TOKEN_LENGTH = 16

# KEYS: lease, last token, index of hosts. ARGV: token, text, ms, whether it is taken, name of a host that follows or
# "". Sets the lease when it is free or ours; else who has it.
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
# KEYS, ARGV: as above. Leaves what a lease of ours says as it is; one that has run out is taken as above.
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
    """Raised when another launcher has taken this one's place in the run: nothing of the run is this one's any more."""


@dataclass(frozen=True)
class Presence:
    """What one launcher tells the others.

    `open`: of the leader, whether the run can be joined. `ready`: all services are served (of its own share; of the
    leader: of the whole run, so that phase 1 may begin). `left`: processes of phase 1 of its share that are not done.
    `failed`: why it gave up. `status`: of the leader once the run has ended, the exit status. `update`: of the leader,
    s that an update of a learner takes.
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
        """For a person."""
        return f"process {self.pid} on {self.machine}"

    @classmethod
    def read(cls, stored: bytes | None) -> Presence | None:
        """From the value of a lease; None for what is none."""
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
    """The leases of one run's launchers, and the processes that serve. Raises redis.RedisError."""

    def __init__(self, redis_url: str, topology: Topology) -> None:
        self._redis = redis_client.connect(
            redis_url, retry=Retry(ConstantBackoff(0.2), 1), socket_timeout=ANSWER_WITHIN
        )
        self._run, self._prefix = topology.run, topology.key_prefix
        self._hosts = f"{self._prefix}hosts"
        self.token = secrets.token_hex(TOKEN_LENGTH // 2)
        self._renew, self._extend = self._redis.register_script(_RENEW), self._redis.register_script(_EXTEND)
        self._said: tuple[bool, Presence] | None = None  # what the place says
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
        """Keep the place and say how this launcher stands. Raises Superseded when it is another's by now."""
        self._said = leader, presence  # before it is sent: the thread never says what is older than what is there
        held = self._set(leader, presence, first=False)
        if held is not None:
            other = Presence.read(held)
            who = other.where if other else "another launcher"
            raise Superseded(
                f"{who} has taken this one's place as {presence.host} of run {self._run}, since this one was silent "
                f"for {LEASE:g} s; the run is left to that one"
            )

    def hold(self) -> None:
        """Renew the place that was taken from a thread, until `rest` or `leave`; `renew` tells who has taken it."""
        self._resting.clear()
        self._thread = threading.Thread(target=self._keep, name="launcher's lease", daemon=True)
        self._thread.start()

    def rest(self) -> None:
        """Renew the place from the thread no more: it runs out. Safe to call twice."""
        self._resting.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _keep(self) -> None:
        while not self._resting.wait(LEASE / 4.0):
            try:
                assert self._said is not None, "a place is taken first"
                if self._set(*self._said, first=False, script=self._extend) is not None:
                    return  # the launcher's own `renew` finds the same and says so
            except redis.RedisError:
                continue  # the launcher tells that Redis is away

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
        """Return the processes of the run that hold a lease of their work, which no launcher does."""
        return living(self._redis, self._prefix)

    def leader(self) -> Presence | None:
        """Who leads; None when nobody does."""
        return self._read(self._key(True, ""))

    def hosts(self) -> dict[str, Presence]:
        """Return host -> what it said last, of those that joined."""
        names: Any = self._redis.smembers(self._hosts)
        stored: Any = self._redis.mget([self._key(False, name.decode()) for name in sorted(names)]) if names else []
        found = [Presence.read(one) for one in stored]
        return {presence.host: presence for presence in found if presence is not None}

    def post_card(self, card: Mapping[str, object]) -> None:
        """What who joins is told of the run; it stays until the run is removed."""
        self._redis.set(card_key(self._prefix), json.dumps(dict(card)))

    def card(self) -> dict[str, Any]:
        """What the leader has posted; empty where there is none."""
        return read_card(self._redis.get(card_key(self._prefix)))

    def serves(self, process: str) -> None:
        """The process of that name serves now."""
        self._redis.sadd(f"{self._prefix}ready", process)
        self._redis.expire(f"{self._prefix}ready", DAY)

    def serving(self) -> set[str]:
        """The processes that have begun to serve."""
        found: Any = self._redis.smembers(f"{self._prefix}ready")
        return {name.decode(errors="replace") for name in found}

    @property
    def kept(self) -> frozenset[str]:
        """The keys of the leader's place, which go last when a run is removed."""
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
    """Return a sentence's beginning: these processes of the run live, and this is how to end them."""
    return (
        f"{run} is running: {named(holders)}; end these processes where they were started (docker compose stop, "
        "docker stack rm, kubectl delete, or SIGTERM to each; a killed one of another machine or container counts "
        f"for {SECONDS:g} s)"
    )


def named(holders: Sequence[Holder]) -> str:
    """Return these processes as text, the first of them by name."""
    more = [f"{len(holders) - NAMED} more"] if len(holders) > NAMED else []
    return ", ".join([*map(str, holders[:NAMED]), *more])
