"""A process's time by stage and thread, in s, waits included; for its log, and outcome.json."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Timing:
    """A clock of stages; thread-safe.

    Names of stages: "collect"; "collect/policy" for a part of it; "sender: send" for a stage on a thread of its own.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spent: dict[str, tuple[float, int]] = {}  # stage -> (seconds, how often)
        self._since: float | None = None

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add the time that this block takes to a stage."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.add(name, time.perf_counter() - started)

    def add(self, name: str, seconds: float) -> None:
        """Add `seconds`, which end now, to a stage."""
        with self._lock:
            if self._since is None:
                self._since = time.perf_counter() - seconds
            spent, times = self._spent.get(name, (0.0, 0))
            self._spent[name] = (spent + seconds, times + 1)

    def shares(self) -> dict[str, dict[str, float]]:
        """Return for each stage its seconds, its share of the time since the first stage began, its runs, us per run.

        The shares of one thread's stages add up to 1 at most.
        """
        with self._lock:
            spent, since = dict(self._spent), self._since
        wall = time.perf_counter() - since if since is not None else 0.0
        return {
            name: {
                "seconds": round(seconds, 3),
                "share": round(seconds / wall, 4) if wall else 0.0,
                "times": times,
                "us": round(1e6 * seconds / times),
            }
            for name, (seconds, times) in spent.items()
        }

    def lines(self) -> list[str]:
        """Return `shares` as lines of text, the longest stage of each thread first."""
        shares = self.shares()
        return [
            f"{name:24} {row['share']:6.1%} {row['seconds']:9.2f} s {row['times']:9,} x {row['us']:11,} us"
            for name, row in sorted(shares.items(), key=lambda item: _place(*item))
        ]


def _place(name: str, row: dict[str, Any]) -> tuple[str, float]:
    return (name.partition(": ")[0] if ": " in name else "", -row["seconds"])
