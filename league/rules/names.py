"""Names of players and of their models."""

from __future__ import annotations

import re

# Names are part of keys, of file and folder names and of `player@version`; hence not "." and "..".
ALLOWED = "1 to 100 of A-Z, a-z, 0-9, '_', '-', '.', and neither '.' nor '..'"
NAME = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9_.-]{1,100}")

AVERAGE = ".average-"  # between the name of a player and a rate


def average_name(player: str, rate: float) -> str:
    """Return the name under which averages of a player's weights at `rate` are kept as models."""
    return f"{player}{AVERAGE}{rate!r}"


def averaged(name: str) -> str:
    """Return the player whose weights the models called `name` average; `name` itself if they are no averages."""
    return name.rpartition(AVERAGE)[0] or name
