"""Looks at learning players: an evaluator writes them to Redis, and the end of a learning period reads them."""

from __future__ import annotations

import json
import secrets
from dataclasses import asdict
from typing import Any

from league.rules.plateau import Look

KEPT = 1000  # newest looks of a player


class SharedLooks:
    """A list per player beside the league at `prefix`; it is not part of the league's state and is not restored.

    A list is read again only after a look was added: each addition writes a new random token.
    """

    def __init__(self, redis: Any, prefix: str) -> None:
        self._redis, self._key, self._newest_key = redis, f"{prefix}looks", f"{prefix}looks:newest"
        self._known: dict[str, tuple[bytes | None, list[Look]]] = {}

    def add(self, player: str, look: Look) -> None:
        """Add a look, and drop those of other generations or of as many steps or more: their weights are gone."""
        kept = [one for one in self.of(player) if one.generation == look.generation and one.steps < look.steps]
        with self._redis.pipeline(transaction=True) as pipeline:
            pipeline.hset(self._key, player, json.dumps([asdict(one) for one in [*kept, look][-KEPT:]]))
            pipeline.hset(self._newest_key, player, secrets.token_hex(8))
            pipeline.execute()

    def of(self, player: str) -> list[Look]:
        """Return the looks at a player, oldest first."""
        newest = self._redis.hget(self._newest_key, player)
        known = self._known.get(player)
        if newest is not None and known is not None and known[0] == newest:
            return known[1]
        found = self._redis.hget(self._key, player)
        told = [] if found is None else json.loads(found)
        looks = [Look(**{**one, "members": tuple(map(tuple, one.get("members", ())))}) for one in told]
        self._known[player] = newest, looks
        return looks
