"""Rated games of people, kept in Redis beside a league; they are not part of its state."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from league.redis.texts import pairs
from league.rules.names import ALLOWED, NAME
from league.rules.people import PersonGame
from warren.errors import ConfigurationError

MOST = 10_000  # games in a league: all are read whenever the league is shown


class People:
    """The rated games of one league; `prefix` is that of its store."""

    def __init__(self, redis: Any, prefix: str) -> None:
        self._redis, self._key = redis, f"{prefix}people"

    def __len__(self) -> int:
        return int(self._redis.hlen(self._key))

    def add(self, game: PersonGame) -> None:
        """Keep a game. Raises ConfigurationError for an invalid name, or if the league has MOST games already."""
        if not NAME.fullmatch(game.person):
            raise ConfigurationError(f"{game.person!r} cannot name a person; use {ALLOWED}")
        if len(self) >= MOST:
            raise ConfigurationError(f"the league has {MOST:,} rated games, and takes no more; play on in a new run")
        self.put({secrets.token_hex(8): game})

    def put(self, games: Mapping[str, PersonGame]) -> None:
        """Keep games under their ids; a game that is there already is not counted again."""
        if games:
            self._redis.hset(self._key, mapping={name: json.dumps(asdict(game)) for name, game in games.items()})

    def games(self) -> dict[str, PersonGame]:
        """Return all games by their ids."""
        return {name: PersonGame(**json.loads(game)) for name, game in pairs(self._redis.hgetall(self._key)).items()}
