"""Formats of data that releases exchange or leave on disk: numbers that grow where an older release cannot read it.

    {"written_by": stamp(MESSAGES), ...}                      # {"format": 2, "release": "0.1.0"}, in what is written
    refusal("checkpoint x", found["written_by"], CHECKPOINT)  # why this release cannot read it, or None

Data without a stamp is of format 1. The code that reads an older format reads it, or refuses it in words.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from warren import __version__

MESSAGES = 2  # between the processes of a run. 2: masks where episodes were cut off (sampling=served)
CHECKPOINT = 1
CONFIGURATION = 1
LEAGUE = 1  # a saved league's folder


def stamp(number: int) -> dict[str, Any]:
    """Return the stamp of data written here: its format and this release."""
    return {"format": number, "release": __version__}


def format_of(found: Any) -> int:
    """Return the format that a stamp names; 1 where there is none."""
    number = found.get("format") if isinstance(found, Mapping) else None
    return number if isinstance(number, int) else 1


def release_of(found: Any) -> str:
    """Return the release that a stamp names, for a person."""
    return f"Warren {found['release']}" if isinstance(found, Mapping) and "release" in found else "an older Warren"


def refusal(what: str, found: Any, known: int) -> str | None:
    """Return why `what`, with the stamp `found`, is too new for this release, which reads formats up to `known`."""
    if (number := format_of(found)) <= known:
        return None
    theirs = release_of(found)
    return (
        f"{what}: written by {theirs} in format {number}, and this is Warren {__version__}, which reads formats up to "
        f"{known}; use {theirs} or newer"
    )
