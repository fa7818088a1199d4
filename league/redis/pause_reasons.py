"""The reasons for which players were paused by a program, beside the league: what `league.show` says of them."""

from __future__ import annotations

from league.redis.store import Store
from league.redis.texts import pairs


class PauseReasons:
    """The reasons in one league."""

    def __init__(self, store: Store) -> None:
        self._redis, self._key = store.redis, f"{store.prefix}reasons"

    def note(self, player: str, reason: str) -> None:
        """Keep the reason of a player's pause."""
        self._redis.hset(self._key, player, reason)

    def forget(self, player: str) -> None:
        """Drop a reason that holds no more."""
        self._redis.hdel(self._key, player)

    def all(self) -> dict[str, str]:
        """Return player -> reason."""
        return pairs(self._redis.hgetall(self._key))
