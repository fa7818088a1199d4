"""A mean return as a person reads it."""

from __future__ import annotations


def shown(mean: float | None) -> str:
    """One digit after the point; of small returns, as of games that are won or lost, two. None: "unknown"."""
    if mean is None:
        return "unknown"
    return f"{mean:.1f}" if abs(mean) >= 10 else f"{mean:.2f}"
