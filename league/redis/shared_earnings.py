"""Shares of learning that players have earned: an evaluator writes them to Redis for what gives out turns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from league.redis.texts import pairs


class SharedEarnings:
    """A number per player beside the league at `prefix`; it is not part of the league's state and is not restored."""

    def __init__(self, redis: Any, prefix: str) -> None:
        self._redis, self._key = redis, f"{prefix}earned"

    def put(self, shares: Mapping[str, float]) -> None:
        """Set the shares of players."""
        self._redis.hset(self._key, mapping={name: repr(share) for name, share in shares.items()})

    def get(self) -> dict[str, float]:
        """Return player -> its share; {} before any was earned."""
        return {name: float(share) for name, share in pairs(self._redis.hgetall(self._key)).items()}
