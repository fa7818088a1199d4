"""Shares of learning that players have earned, which an evaluator leaves in Redis for who gives out turns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from league.redis.texts import pairs


class SharedEarnings:
    """A number of each player beside the league at `prefix`; it is no part of the league's state and not restored."""

    def __init__(self, redis: Any, prefix: str) -> None:
        self._redis, self._key = redis, f"{prefix}earned"

    def put(self, shares: Mapping[str, float]) -> None:
        """Set the shares of players."""
        self._redis.hset(self._key, mapping={name: repr(share) for name, share in shares.items()})

    def get(self) -> dict[str, float]:
        """Return player -> its share; {} before any was earned."""
        return {name: float(share) for name, share in pairs(self._redis.hgetall(self._key)).items()}
