"""Text of what Redis answers (bytes, or str where the client decodes) and of what it is given."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from warren.errors import LeagueError

NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")  # of a player: part of keys, of file names and of `player@version`


def text(value: Any) -> str:
    """One value as text."""
    return value.decode() if isinstance(value, bytes) else str(value)


def pairs(flat: Any) -> dict[str, str]:
    """A hash as text, from the flat list of a script or the dict of HGETALL."""
    items = flat.items() if isinstance(flat, dict) else zip(flat[::2], flat[1::2], strict=True)
    return {text(key): text(value) for key, value in items}


def to_json(value: Any) -> str:
    """Compact JSON with sorted keys: equal values are equal texts."""
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def to_field(value: Any) -> str:
    """A field of a hash: 0 or 1 for a bool, JSON for a mapping, nothing for None."""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, Mapping):
        return to_json(dict(value))
    return "" if value is None else str(value)


def milliseconds(lease: float) -> int:
    """A lease in s as whole ms. Raises LeagueError for one that is over at once."""
    if not lease > 0.0:
        raise LeagueError(f"a lease of {lease} s is over at once; give some seconds, longer than the work takes")
    return max(1, round(lease * 1000))
