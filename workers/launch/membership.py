"""Where the launchers of one run meet: who leads it, which hosts take part, who is ready, how it ended. In Redis.

Everything said here is a lease: who is killed is missed within seconds, and what it said is gone.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
from dataclasses import asdict, dataclass, field
from typing import Any

import redis
from redis.backoff import ExponentialBackoff
from redis.retry import Retry

from tasks.app import REDIS_TRIES
from tasks.topology import Topology
from warren.errors import ConfigurationError, WarrenError

ENDED = "run-ended"  # the event that the leader fires last; its payload is the exit status
LEASE = 12.0  # s for which a launcher's word holds; it is renewed every second
DAY = 24 * 3600


@dataclass(frozen=True)
class Word:
    """What one launcher says of itself.

    `ready`: all services are served (of its own share; of the leader: of the whole run, so that environments may
    begin). `left`: environments of its share that are not done. `failed`: why it gave up. `status`: of the leader
    once the run has ended, the exit status.
    """

    host: str
    ready: bool = False
    left: int = 0
    failed: str = ""
    status: int | None = None
    machine: str = field(default_factory=socket.gethostname)
    pid: int = field(default_factory=os.getpid)
    token: str = ""

    @property
    def where(self) -> str:
        """For a person."""
        return f"process {self.pid} on {self.machine}"


class Meeting:
    """The words of the launchers of one run, and the processes that serve. Raises redis.RedisError."""

    def __init__(self, redis_url: str, topology: Topology) -> None:
        self._redis = redis.Redis.from_url(redis_url, retry=Retry(ExponentialBackoff(cap=1.0, base=0.1), REDIS_TRIES))
        self._run, self._prefix = topology.run, topology.key_prefix
        self._token = secrets.token_hex(8)

    def take(self, leader: bool, word: Word) -> None:
        """Begin to say `word`. Raises ConfigurationError when another process holds that place in the run."""
        key = self._key(leader, word.host)
        if not self._redis.set(key, self._text(word), nx=True, px=int(LEASE * 1000)):
            other = self._word(key)
            held = f" by {other.where}" if other else ""
            raise ConfigurationError(
                f"run {self._run} is led already{held}; name another with run=NAME"
                if leader
                else f"host {word.host} of run {self._run} is started already{held}; name another with --host NAME"
            )

    def say(self, leader: bool, word: Word) -> None:
        """Renew. Raises WarrenError when another process has taken the place meanwhile, since this one was silent."""
        key = self._key(leader, word.host)
        other = self._word(key)
        if other is not None and other.token != self._token:
            raise WarrenError(f"{other.where} has taken this one's place as {word.host} of run {self._run}")
        self._redis.set(key, self._text(word), px=int(LEASE * 1000))

    def leave(self, host: str) -> None:
        """Say nothing more as `host`."""
        self._redis.delete(self._key(False, host))

    def leader(self) -> Word | None:
        """The newest word of who leads; None when nobody does."""
        return self._word(self._key(True, ""))

    def hosts(self) -> dict[str, Word]:
        """Host -> its newest word, of those that joined."""
        keys = list(self._redis.scan_iter(match=f"{self._prefix}host:*", count=1000))
        words = [self._word(key) for key in keys]
        return {word.host: word for word in words if word is not None}

    def serves(self, process: str) -> None:
        """The process of that name serves now."""
        self._redis.sadd(f"{self._prefix}ready", process)
        self._redis.expire(f"{self._prefix}ready", DAY)

    def serving(self) -> set[str]:
        """The processes that have begun to serve."""
        found: Any = self._redis.smembers(f"{self._prefix}ready")
        return {name.decode() for name in found}

    def _key(self, leader: bool, host: str) -> str:
        return f"{self._prefix}leader" if leader else f"{self._prefix}host:{host}"

    def _text(self, word: Word) -> str:
        return json.dumps({**asdict(word), "token": self._token})

    def _word(self, key: Any) -> Word | None:
        text: Any = self._redis.get(key)
        return None if text is None else Word(**json.loads(text))
