"""Text of what Redis answers (bytes, or str where the client decodes) and of what it is given."""

from __future__ import annotations

from typing import Any

from warren.errors import LeagueError


def text(value: Any) -> str:
    """One value as text."""
    return value.decode() if isinstance(value, bytes) else str(value)


def pairs(flat: Any) -> dict[str, str]:
    """A hash as text, from the flat list of a script or the dict of HGETALL."""
    items = flat.items() if isinstance(flat, dict) else zip(flat[::2], flat[1::2], strict=True)
    return {text(key): text(value) for key, value in items}


def milliseconds(lease: float) -> int:
    """A lease in s as whole ms. Raises LeagueError for one that is over at once."""
    if not lease > 0.0:
        raise LeagueError(f"a lease of {lease} s is over at once; give some seconds, longer than the work takes")
    return max(1, round(lease * 1000))
