"""The matches that ended lately, and how: tells a result that comes twice or late from one that nobody asked for.

Two generations: once the newer one holds KEPT matches the older one is forgotten, so the last KEPT are always known and
never more than twice as many. Redis does the same in two hashes (league/redis/lua/lib.lua).
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
        """Remember one more."""
        if len(self._newer) >= self._kept:
            self._newer, self._older = {}, self._newer
        self._newer[match] = how

    def get(self, match: str) -> str | None:
        """Return how it ended; None for one that did not, or is forgotten."""
        return self._newer.get(match) or self._older.get(match)

    def __contains__(self, match: object) -> bool:
        return match in self._newer or match in self._older
