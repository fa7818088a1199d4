"""Deadlines of calls, which every form of a call checks here before anything else happens."""

from __future__ import annotations

from warren.errors import ConfigurationError

MOST = 4_294_967.0  # s; RabbitMQ's expiration holds 2**32 - 1 ms


def checked(deadline: float | None) -> float | None:
    """Return `deadline`, in s, or None for any time. Raises ConfigurationError for a deadline that no call can have."""
    try:
        if deadline is None or 0.0 < deadline <= MOST:
            return None if deadline is None else float(deadline)
    except (TypeError, ValueError):
        pass  # not a number
    raise ConfigurationError(
        f"deadline={deadline!r}: give a time in s over 0, at most {MOST:.0f} (49 days), or None for any time"
    )
