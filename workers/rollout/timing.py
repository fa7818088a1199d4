"""Where a thread's time goes, as a tree of shares: what an actor logs at its end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Timing:
    """Seconds by path: "collect", and "collect/environments" within it; "" is all of it. For one thread."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def add(self, path: str, seconds: float) -> None:
        """So many more."""
        self.seconds[path] = self.seconds.get(path, 0.0) + seconds

    @contextmanager
    def measure(self, path: str) -> Iterator[None]:
        """Adds the time that the block takes."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.add(path, time.perf_counter() - began)

    def tree(self) -> str:
        """A line each, indented, with its share of the whole; what no part accounts for is "other"."""
        whole = self.seconds.get("") or sum(s for path, s in self.seconds.items() if "/" not in path)
        return "\n".join([f"{whole:.1f} s", *self._below("", whole, max(whole, 1e-9), 1)])

    def _below(self, path: str, seconds: float, whole: float, depth: int) -> Iterator[str]:
        prefix = f"{path}/" if path else ""
        parts = {
            name: part
            for name, part in self.seconds.items()
            if name and name.startswith(prefix) and "/" not in name[len(prefix) :]
        }
        for name, part in parts.items():
            yield f"{'  ' * depth}{name[len(prefix) :]} {100 * part / whole:.1f} %"
            yield from self._below(name, part, whole, depth + 1)
        if parts and (other := seconds - sum(parts.values())) > 0.001 * whole:
            yield f"{'  ' * depth}other {100 * other / whole:.1f} %"
