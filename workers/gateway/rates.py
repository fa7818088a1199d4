"""The bound on the rate of requests from one address."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from workers.gateway.protocol import Refusal

REMEMBERED = 10_000  # addresses; beyond that, those that have all their requests left again are forgotten


class Rates:
    """Requests by address: at most `most` per second, all of them at once after a quiet second. For one thread."""

    def __init__(self, most: float | None, now: Callable[[], float] = time.monotonic) -> None:
        """`most`: None for any number."""
        self._limited, self._most, self._now = most is not None, most or 0.0, now
        self._room = max(1.0, self._most)
        self._seen: dict[str, tuple[float, float]] = {}  # address -> requests that it had left, and when

    def admit(self, client: Any) -> None:
        """Count a request of a client, (address, port, ...). Raises Refusal 429 for one too many from its address."""
        if not self._limited or not client:
            return
        address, now = client[0], self._now()
        left, at = self._seen.get(address, (self._room, now))
        left = min(self._room, left + (now - at) * self._most)
        if left < 1.0:
            self._seen[address] = left, now
            raise Refusal(429, f"{address} has sent over {self._most:g} requests a second (gateway.max_rate)")
        if address not in self._seen and len(self._seen) >= REMEMBERED:
            self._forget(now)
        self._seen[address] = left - 1.0, now

    def _forget(self, now: float) -> None:
        quiet = self._room / self._most  # s after which an address has all its requests left
        self._seen = {name: seen for name, seen in self._seen.items() if now - seen[1] < quiet}
