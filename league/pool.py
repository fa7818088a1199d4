"""The model pool: weights of each player in Redis, newest version and stamps in one hash, replaced atomically."""

from __future__ import annotations

import time
import zlib
from dataclasses import dataclass
from typing import Any

from warren.errors import CheckpointError

# One step: a late writer (a learner that was thought dead) never replaces newer weights.
_PUT = """
local version = redis.call('HGET', KEYS[1], 'version')
if version and tonumber(version) >= tonumber(ARGV[1]) then return 0 end
redis.call('HSET', KEYS[1], 'version', ARGV[1], 'step', ARGV[2], 'created', ARGV[3],
           'checksum', ARGV[4], 'data', ARGV[5])
return 1
"""


@dataclass(frozen=True)
class Model:
    """One entry: `data` is safetensors bytes, `step` the environment steps it was made at, `created` Unix time in s."""

    player: str
    version: int
    step: int
    created: float
    data: bytes


class Pool:
    """The weights of a run's players; keys begin with `prefix`."""

    def __init__(self, redis: Any, prefix: str) -> None:
        self._redis, self._prefix = redis, prefix
        self._put = redis.register_script(_PUT)

    def put(self, player: str, version: int, step: int, data: bytes) -> bool:
        """Store `data` as the newest weights of `player`; False when the pool holds this version or a newer one."""
        arguments = [version, step, time.time(), zlib.crc32(data), data]
        return bool(self._put(keys=[self._key(player)], args=arguments))

    def version(self, player: str) -> int | None:
        """The newest version of `player`, None when there is none; loads no weights."""
        version = self._redis.hget(self._key(player), "version")
        return None if version is None else int(version)

    def newest(self, player: str, newer_than: int = -1) -> Model | None:
        """The newest weights of `player`, or None when they are not newer than `newer_than`.

        Raises CheckpointError when the bytes do not match their checksum.
        """
        version = self.version(player)
        if version is None or version <= newer_than:
            return None
        fields = self._redis.hgetall(self._key(player))
        data = fields[b"data"]
        if zlib.crc32(data) != int(fields[b"checksum"]):
            raise CheckpointError(f"pool: the weights of {player!r} version {version} are damaged; publish them again")
        return Model(player, int(fields[b"version"]), int(fields[b"step"]), float(fields[b"created"]), data)

    def _key(self, player: str) -> str:
        return f"{self._prefix}pool:{player}"
