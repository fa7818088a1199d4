"""Conversion of Redis's answers to text: they are bytes, or str if the client decodes."""

from __future__ import annotations

from typing import Any


def text(value: Any) -> str:
    """Return one value as text."""
    return value.decode() if isinstance(value, bytes) else str(value)


def pairs(flat: Any) -> dict[str, str]:
    """Return a hash as text, from the flat list of a script or the dict of HGETALL."""
    items = flat.items() if isinstance(flat, dict) else zip(flat[::2], flat[1::2], strict=True)
    return {text(key): text(value) for key, value in items}
