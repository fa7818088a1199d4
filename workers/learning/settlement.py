"""What became of segments, on its way into the run's ledger; what Redis did not take waits for the next time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workers.runtime.segment_ledger import Segment, Settled
from workers.runtime.session import Session

MOST_SEGMENTS = 1 << 32  # of one process: Redis has no bits beyond


class Settlement:
    """Segments that were learned from or dropped, which the ledger is still to be told of."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._unsettled: list[Settled] = []

    def add(self, kind: str, payload: Any, used: int | None = None) -> None:
        """A payload was learned from or dropped (see Settled); `used` of its steps, all of them by default.

        A damaged one may have no number, or none that can be one: it is left out.
        """
        segment = segment_of(payload)
        if segment is not None:
            self._unsettled.append(Settled(segment, kind, segment.steps if used is None else min(used, segment.steps)))

    def settle(self) -> None:
        """Tell the ledger. Raises redis.RedisError, and keeps what it would have told."""
        if self._unsettled:
            self._session.ledger.settle(self._unsettled)
            self._unsettled = []


def segment_of(payload: Any) -> Segment | None:
    """Which segment a payload is; None where it does not say so."""
    given = payload if isinstance(payload, Mapping) else {}
    source, number, steps = given.get("source"), given.get("number"), given.get("steps")
    if not isinstance(source, str) or type(number) is not int or not 0 <= number < MOST_SEGMENTS:
        return None
    return Segment(source, number, steps if type(steps) is int and steps >= 0 else 0)
