"""The reasons why programs paused players, kept beside the league for `league.show`."""

from __future__ import annotations

from league.redis.store import Store
from league.redis.texts import pairs


class PauseReasons:
    """The reasons of one league."""

    def __init__(self, store: Store) -> None:
        self._redis, self._key = store.redis, f"{store.prefix}reasons"

    def note(self, player: str, reason: str) -> None:
        """Keep the reason of a player's pause."""
        self._redis.hset(self._key, player, reason)

    def forget(self, player: str) -> None:
        """Drop a reason that no longer applies."""
        self._redis.hdel(self._key, player)

    def all(self) -> dict[str, str]:
        """Return player -> reason."""
        return pairs(self._redis.hgetall(self._key))
