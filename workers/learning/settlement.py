"""What became of segments, on its way into the run's ledger; what Redis did not take waits for the next time.

On a thread of its own where updates follow each other: a Redis that is far would hold each of them up.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

from workers.runtime.segment_ledger import Segment, Settled
from workers.runtime.session import Session

MOST_SEGMENTS = 1 << 32  # of one process: Redis has no bits beyond


class Settlement:
    """Segments that were learned from or dropped, which the ledger is still to be told of."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._unsettled: list[Settled] = []
        self._thread: ThreadPoolExecutor | None = None
        self._last: Future[Any] | None = None

    def add(self, kind: str, payload: Any, used: int | None = None) -> None:
        """A payload was learned from or dropped (see Settled); `used` of its steps, all of them by default.

        A damaged one may have no number, or none that can be one: it is left out.
        """
        segment = segment_of(payload)
        if segment is not None:
            settled = Settled(segment, kind, segment.steps if used is None else min(used, segment.steps))
            with self._lock:
                self._unsettled.append(settled)

    def settle(self) -> None:
        """Tell the ledger. Raises redis.RedisError, and keeps what it would have told."""
        with self._lock:
            telling, self._unsettled = self._unsettled, []
        if not telling:
            return
        try:
            self._session.ledger.settle(telling)
        except BaseException:
            with self._lock:
                self._unsettled = telling + self._unsettled
            raise

    # On a thread.

    def start(self) -> None:
        """From now on `soon` does not wait."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ledger")

    def soon(self, tell: Callable[[], object]) -> Future[Any] | None:
        """Call `tell`, which calls `settle`, soon: what it is done with. Without a thread now, and None."""
        if self._thread is None:
            tell()
            return None
        self._last = self._thread.submit(tell)
        return self._last

    def wait(self) -> None:
        """Return once all that is to be told by now was told, or failed. From any thread."""
        if self._last is not None:
            wait([self._last])

    def stop(self) -> None:
        """Tell what is left; from now on at once again."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.shutdown()


def segment_of(payload: Any) -> Segment | None:
    """Which segment a payload is; None where it does not say so."""
    given = payload if isinstance(payload, Mapping) else {}
    source, number, steps = given.get("source"), given.get("number"), given.get("steps")
    if not isinstance(source, str) or type(number) is not int or not 0 <= number < MOST_SEGMENTS:
        return None
    return Segment(source, number, steps if type(steps) is int and steps >= 0 else 0)
