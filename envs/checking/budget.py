"""Limits of a check: steps, seconds, and the end of the process if a single call does not return."""

from __future__ import annotations

import faulthandler
import time
from collections.abc import Iterator

STUCK = 60.0  # s that one call may take, imports and the start of a game included
own_process = False  # this process only runs the check, and may be ended


def watch() -> None:
    """End a process of the check's own STUCK seconds from now, with the stacks of all threads printed, unless called
    again before."""
    if own_process:
        faulthandler.dump_traceback_later(STUCK, exit=True)


def budget(steps: int, seconds: float) -> Iterator[int]:
    """Yield 0, 1, 2, ... as long as there are steps and seconds left."""
    watch()
    now = watched = time.monotonic()
    until = now + seconds
    for step in range(steps):
        yield step
        now = time.monotonic()
        if now > until:
            return
        if now > watched + 1:
            watch()
            watched = now
