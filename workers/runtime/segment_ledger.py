"""Which segments were confirmed and which were used: a bit each in Redis, so that none is lost uncounted.

Each actor process numbers its segments. It sets a bit when the broker has confirmed one; the learner sets a bit when
an update has used one, or when it dropped one as too old. What is confirmed and in neither is still on its way.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Account:
    """Segments of a run. `repeated`: deliveries of a segment that was used already (after a learner died)."""

    confirmed: int
    learned: int
    stale: int
    repeated: int
    missing: int  # confirmed, and neither learned nor dropped as stale


class Ledger:
    """The segments of one run; keys begin with `prefix`."""

    def __init__(self, redis: Any, prefix: str) -> None:
        self._redis, self._prefix = redis, f"{prefix}ledger:"

    def confirm(self, source: str, number: int) -> None:
        """The broker has segment `number` of actor process `source`."""
        with self._redis.pipeline(transaction=False) as pipe:
            pipe.sadd(f"{self._prefix}sources", source)
            pipe.setbit(f"{self._prefix}confirmed:{source}", number, 1)
            pipe.execute()

    def settle(self, learned: Iterable[tuple[str, int]], stale: Iterable[tuple[str, int]]) -> None:
        """An update has used the segments `learned` and dropped those in `stale`, each (source, number)."""
        learned, stale = list(learned), list(stale)
        if not learned and not stale:
            return
        with self._redis.pipeline(transaction=True) as pipe:
            for source, number in learned:
                pipe.setbit(f"{self._prefix}learned:{source}", number, 1)
            for source, number in stale:
                pipe.setbit(f"{self._prefix}stale:{source}", number, 1)
            before = pipe.execute()
        repeated = sum(before)
        if repeated:
            self._redis.incrby(f"{self._prefix}repeated", repeated)

    def account(self) -> Account:
        """Count everything."""
        confirmed = learned = stale = missing = 0
        for source in self._redis.smembers(f"{self._prefix}sources"):
            name = source.decode()
            bits = [
                int.from_bytes(self._redis.get(f"{self._prefix}{kind}:{name}") or b"", "big")
                << 8 * self._short_of(kind, name)
                for kind in ("confirmed", "learned", "stale")
            ]
            confirmed += bits[0].bit_count()
            learned += bits[1].bit_count()
            stale += bits[2].bit_count()
            missing += (bits[0] & ~(bits[1] | bits[2])).bit_count()
        repeated = int(self._redis.get(f"{self._prefix}repeated") or 0)
        return Account(confirmed, learned, stale, repeated, missing)

    def _short_of(self, kind: str, name: str) -> int:
        # Redis strings grow to the highest bit set; align the three by their longest.
        lengths = {k: self._redis.strlen(f"{self._prefix}{k}:{name}") for k in ("confirmed", "learned", "stale")}
        return int(max(lengths.values()) - lengths[kind])
