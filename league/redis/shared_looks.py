"""Looks at learning players, which an evaluator leaves in Redis for whoever ends their learning periods."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from league.rules.plateau import Look

KEPT = 1000  # looks of a player, the newest


class SharedLooks:
    """A list of each player beside the league at `prefix`; it is no part of the league's state and not restored."""

    def __init__(self, redis: Any, prefix: str) -> None:
        self._redis, self._key = redis, f"{prefix}looks"

    def add(self, player: str, look: Look) -> None:
        """Add a look; those of earlier generations, and of later steps, are of weights that are gone."""
        kept = [one for one in self.of(player) if one.generation == look.generation and one.steps < look.steps]
        self._redis.hset(self._key, player, json.dumps([asdict(one) for one in [*kept, look][-KEPT:]]))

    def of(self, player: str) -> list[Look]:
        """Return the looks at a player, oldest first."""
        found = self._redis.hget(self._key, player)
        told = [] if found is None else json.loads(found)
        return [Look(**{**one, "members": tuple(map(tuple, one.get("members", ())))}) for one in told]
