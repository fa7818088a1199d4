"""The newest score of a league: its evaluator writes it to Redis, and whatever shows the league reads it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


class SharedScore:
    """One JSON object beside the league at `prefix`; it is not part of the league's state and is not restored."""

    def __init__(self, redis: Any, prefix: str) -> None:
        self._redis, self._key = redis, f"{prefix}score"

    def put(self, score: Mapping[str, Any]) -> None:
        """Replace the score."""
        self._redis.set(self._key, json.dumps(score))

    def get(self) -> dict[str, Any] | None:
        """Return the newest score; None before the first."""
        found = self._redis.get(self._key)
        return None if found is None else json.loads(found)
