"""Mean returns as text."""

from __future__ import annotations


def shown(mean: float | None) -> str:
    """Format a mean return with one decimal, or two below 10; "unknown" for None."""
    if mean is None:
        return "unknown"
    return f"{mean:.1f}" if abs(mean) >= 10 else f"{mean:.2f}"
