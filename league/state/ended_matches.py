"""The matches that ended lately, and how: tells a result that comes twice or late from one that was never asked for.

There are two generations: once the newer one holds KEPT matches the older one is forgotten. So the last KEPT are always
known here, and never more than twice as many. Redis keeps two hashes alike (league/redis/lua/lib.lua), and forgets the
older one after the setting `memory` as well.
"""

from __future__ import annotations

KEPT = 100_000


class EndedMatches:
    """Matches by id, with how they ended: "counted", "expired" or "aborted"."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._newer: dict[str, str] = {}
        self._older: dict[str, str] = {}

    def add(self, match: str, how: str) -> None:
        """Remember that a match ended as `how`."""
        if len(self._newer) >= self._kept:
            self._newer, self._older = {}, self._newer
        self._newer[match] = how

    def get(self, match: str) -> str | None:
        """Return how a match ended; None if it has not ended, or is forgotten."""
        return self._newer.get(match) or self._older.get(match)

    def __contains__(self, match: object) -> bool:
        return match in self._newer or match in self._older
