"""Gains of best responses, as evaluators measure them and whatever shows the league reads them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Gain:
    """The return of a game, over both seats, of the frozen player `response` against `target`, in points.

    The interval is from `lower` to `upper`. `games` is 0 if the return was computed on the whole game instead of
    played; the three figures are then equal.
    """

    response: str
    target: str
    games: int
    mean: float
    lower: float
    upper: float

    def __str__(self) -> str:
        counted = f"{self.games:,} games" if self.games else "exact"
        return f"{self.mean:+.4f} ({self.lower:+.4f} to {self.upper:+.4f}; {counted})"
