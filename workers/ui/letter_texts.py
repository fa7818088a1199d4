"""Texts about dead letters for a terminal or for JSON: values cut to a length, control characters escaped, ages."""

from __future__ import annotations

import time
from typing import Any

SHOWN_VALUES = 16  # an array with more of them is shown as its dtype and shape
SHOWN_TEXT = 2_000  # characters of a text
SHOWN_PARTS = 100  # parts of a list or a table
SHOWN_DEPTH = 20  # lists within lists


def shown(value: Any, whole: bool = False, depth: int = 0) -> Any:
    """Return a value for JSON: short arrays with their values, long ones with dtype and shape.

    Long texts and lists are cut, with how much there is of them, unless `whole`.
    """
    if depth >= SHOWN_DEPTH and isinstance(value, dict | list | tuple):
        return "..."
    if isinstance(value, dict):
        return _parts(value, whole, depth)
    if isinstance(value, list | tuple):
        kept = value if whole else value[:SHOWN_PARTS]
        left = len(value) - len(kept)
        return [*(shown(part, whole, depth + 1) for part in kept), *([f"... {left:,} more"] if left else [])]
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return _cut(value, whole)
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        size = 1
        for length in value.shape:
            size *= length
        values = f" {value.tolist()}" if size <= SHOWN_VALUES else ""
        return f"{type(value).__name__} {value.dtype} {tuple(value.shape)}{values}"
    if isinstance(value, bytes | bytearray | memoryview) and not whole:
        return f"{bytes(value[:SHOWN_VALUES])!r}{f'... of {len(value):,} bytes' if len(value) > SHOWN_VALUES else ''}"
    return _cut(repr(value), whole)


def _parts(table: dict[Any, Any], whole: bool, depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, part in table.items():
        if not whole and len(found) == SHOWN_PARTS:
            found["..."] = f"{len(table) - SHOWN_PARTS:,} more"
            break
        found[_cut(str(key), whole)] = shown(part, whole, depth + 1)
    return found


def _cut(text: str, whole: bool) -> str:
    return text if whole or len(text) <= SHOWN_TEXT else f"{text[:SHOWN_TEXT]}... of {len(text):,} characters"


def plain(text: str) -> str:
    """Escape the characters of a text that would control a terminal."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in str(text))


def age(died_at: float | None) -> str:
    """Return how long ago that was, in its largest unit; `died_at`: Unix time, None if unknown."""
    if died_at is None:
        return "?"
    seconds = max(0.0, time.time() - died_at)
    for length, unit in ((86_400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
