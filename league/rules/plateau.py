"""Looks at a learning player's return against its target, and whether that return has stopped rising."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf, isfinite

Met = tuple[int, float | None, float | None]


@dataclass(frozen=True)
class Look:
    """Evaluation games of a player with the weights that it had after `steps` decisions, and their returns.

    `mean` is the return of a game, over both seats, with the interval from `lower` to `upper`. `members`, if the target
    asks for them: of each member of the target its slot and the player's mean return against it, with the member in
    seat 0 and in seat 1; None without games.
    """

    generation: int
    steps: int
    games: int
    mean: float
    lower: float
    upper: float
    members: tuple[Met, ...] = ()

    def __str__(self) -> str:
        return f"{self.mean:+.4f} ({self.lower:+.4f} to {self.upper:+.4f})"


def since(looks: Iterable[Look], generation: int, steps: int) -> list[Look]:
    """Return the looks of one generation that came after `steps` decisions of the player, in their order."""
    return [look for look in looks if look.generation == generation and look.steps > steps]


def has_stopped_rising(looks: Sequence[Look], patience: int, games: int) -> bool:
    """Return True if none of the newest `patience` looks, oldest first, is above the highest before them.

    A look is above another if the lower bound of its interval is higher. A look whose whole interval is below the
    highest lower bound was at a stronger target: from there on looks are compared anew. Looks of fewer than `games`
    games, or without a finite interval, are ignored: they neither end a rise nor continue one.
    """
    best, idle = -inf, 0
    for look in looks:
        if look.games < games or not (isfinite(look.mean) and isfinite(look.lower) and isfinite(look.upper)):
            continue
        compares_anew = look.lower > best or look.upper < best
        best, idle = (look.lower, 0) if compares_anew else (best, idle + 1)
    return idle >= patience
