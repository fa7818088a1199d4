"""What became of segments, on its way into the run's ledger; what Redis did not take waits for the next time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from workers.runtime.session import Session

MOST_SEGMENTS = 1 << 32  # of one process: Redis has no bits beyond

Number = tuple[str, int]  # a segment: the process that made it, and which of its segments it is


class Settlement:
    """Learned from, too old, unused, refused, of weights that were begun anew: each kind of segments by number."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._unsettled: tuple[list[Number], ...] = ([], [], [], [], [])

    def add(self, *kinds: Iterable[Any]) -> None:
        """Payloads of each kind, in that order."""
        for waiting, payloads in zip(self._unsettled, kinds, strict=True):
            waiting += _numbers(payloads)

    def settle(self) -> None:
        """Tell the ledger. Raises redis.RedisError, and keeps what it would have told."""
        self._session.ledger.settle(*self._unsettled)
        self._unsettled = ([], [], [], [], [])


def _numbers(payloads: Iterable[Any]) -> list[Number]:
    """Of those that have one; a damaged payload may have none, or none that can be one."""
    numbers = []
    for payload in payloads:
        given = payload if isinstance(payload, Mapping) else {}
        source, number = given.get("source"), given.get("number")
        if isinstance(source, str) and type(number) is int and 0 <= number < MOST_SEGMENTS:
            numbers.append((source, number))
    return numbers
