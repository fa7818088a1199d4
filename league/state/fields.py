"""Values as the fields of an event (equal values are equal texts), damaged fields, and the order of events."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any

from warren.errors import LeagueError

# What a field that is damaged or missing makes Python raise, or a player whose event is missing.
UNFIT = (LookupError, TypeError, ValueError, AttributeError, zlib.error)


def to_json(value: Any) -> str:
    """Return compact JSON with sorted keys, so that equal values give equal texts."""
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def to_field(value: Any) -> str:
    """Return the text of a hash's field: 0 or 1 for a bool, JSON for a mapping, "" for None."""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, Mapping):
        return to_json(dict(value))
    return "" if value is None else str(value)


def event_order(entry: str) -> tuple[int, int]:
    """Return the id of an event as the pair by which events are ordered: (ms of Unix time, number within it)."""
    milliseconds, _, number = entry.partition("-")
    return int(milliseconds), int(number or 0)


def unfit(event: Mapping[str, str], error: Exception) -> LeagueError:
    """Return the error of an event that does not fit the events before it: a file was damaged, or edited."""
    return LeagueError(
        f"{event['event']!r} is damaged, or does not follow what comes before it ({error!r}); restore the stream from "
        "a backup"
    )


def milliseconds(lease: float) -> int:
    """Return a lease in s as whole ms, at least 1. Raises LeagueError if it is not above 0."""
    if not lease > 0.0:
        raise LeagueError(f"a lease of {lease} s is over at once; give some seconds, longer than the work takes")
    return max(1, round(lease * 1000))
