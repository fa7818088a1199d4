"""Outcomes of segments for the run's ledger; those that Redis does not take are told again, before later ones.

If updates follow each other without a pause, a thread tells the ledger, since a remote Redis would delay each update.
"""

from __future__ import annotations

import threading
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

from workers.runtime.segment_ledger import Count, Segment, Settled
from workers.runtime.session import Session

MOST_SEGMENTS = 1 << 32  # segments of one process: a Redis bitmap ends there


class Settlement:
    """Segments that were learned from or dropped, kept until the ledger has been told."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lock, self._telling = threading.Lock(), threading.Lock()
        self._unsettled: list[Settled] = []
        self._teller = uuid.uuid4().hex
        self._batches: deque[tuple[int, list[Settled]]] = deque()  # by number, until the ledger has answered
        self._number = 0
        self._thread: ThreadPoolExecutor | None = None
        self._last: Future[Any] | None = None

    def add(self, kind: str, payload: Any, used: int | None = None) -> None:
        """Record that a payload was learned from or dropped (see Settled); `used` of its steps, by default all.

        A damaged payload without a valid number is left out.
        """
        segment = segment_of(payload)
        if segment is not None:
            settled = Settled(segment, kind, segment.steps if used is None else min(used, segment.steps))
            with self._lock:
                self._unsettled.append(settled)

    def settle(self) -> None:
        """Tell the ledger. Raises redis.RedisError, keeping all for the next time, under the same number."""
        with self._telling:
            with self._lock:
                if self._unsettled:
                    self._number += 1
                    self._batches.append((self._number, self._unsettled))
                    self._unsettled = []
            while self._batches:
                number, batch = self._batches[0]
                self._session.ledger.settle(batch, self._teller, number)
                self._batches.popleft()

    def keep(self, kept: Count) -> None:
        """Tell the ledger that a replay begins with `kept` of all that was stored. Raises redis.RedisError."""
        self._session.ledger.keep(kept)

    # On a thread.

    def start(self) -> None:
        """Use a thread from now on, so that `soon` does not wait."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ledger")

    def soon(self, tell: Callable[[], object]) -> Future[Any] | None:
        """Call `tell`, which calls `settle`, on the thread and return its future.

        Without a thread call it now and return None.
        """
        if self._thread is None:
            tell()
            return None
        self._last = self._thread.submit(tell)
        return self._last

    def wait(self) -> None:
        """Wait until all calls of `soon` so far have succeeded or failed. From any thread."""
        if self._last is not None:
            wait([self._last])

    def stop(self) -> None:
        """Finish the remaining calls and end the thread; later calls of `soon` wait again."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.shutdown()


def segment_of(payload: Any) -> Segment | None:
    """Return the segment of a payload; None if it names none."""
    given = payload if isinstance(payload, Mapping) else {}
    source, number, steps = given.get("source"), given.get("number"), given.get("steps")
    if not isinstance(source, str) or type(number) is not int or not 0 <= number < MOST_SEGMENTS:
        return None
    return Segment(source, number, steps if type(steps) is int and steps >= 0 else 0)
