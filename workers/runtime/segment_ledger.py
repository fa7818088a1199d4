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
    """Segments of a run. `repeated`: deliveries of a segment that was used already (after a learner died).

    What was used counts as confirmed, also where the actor was killed before it could say so. The rest adds up to it:
    confirmed = learned + stale + unused + missing.
    """

    confirmed: int
    learned: int
    stale: int
    repeated: int
    unused: int  # given up at the end of the run
    missing: int  # none of these: still in a queue, or lost


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

    def settle(
        self,
        learned: Iterable[tuple[str, int]],
        stale: Iterable[tuple[str, int]],
        unused: Iterable[tuple[str, int]] = (),
    ) -> None:
        """Segments, each (source, number), that an update has used, that were too old, that came after the end."""
        settled = {"learned": list(learned), "stale": list(stale), "unused": list(unused)}
        if not any(settled.values()):
            return
        with self._redis.pipeline(transaction=True) as pipe:
            for kind, segments in settled.items():
                for source, number in segments:
                    pipe.setbit(f"{self._prefix}{kind}:{source}", number, 1)
            # An actor that was killed before it could say that the broker has its first segment is a source as well.
            pipe.sadd(f"{self._prefix}sources", *{source for segments in settled.values() for source, _ in segments})
            *before, _ = pipe.execute()
        repeated = sum(before)
        if repeated:
            self._redis.incrby(f"{self._prefix}repeated", repeated)

    def account(self) -> Account:
        """Count everything."""
        confirmed = learned = stale = unused = 0
        for source in self._redis.smembers(f"{self._prefix}sources"):
            said, was_learned, was_stale, was_unused = self._bits(source.decode())
            confirmed += (said | was_learned | was_stale | was_unused).bit_count()
            learned += was_learned.bit_count()
            stale += (was_stale & ~was_learned).bit_count()
            unused += (was_unused & ~(was_learned | was_stale)).bit_count()
        repeated = int(self._redis.get(f"{self._prefix}repeated") or 0)
        return Account(confirmed, learned, stale, repeated, unused, confirmed - learned - stale - unused)

    def _bits(self, source: str) -> list[int]:
        """Confirmed, learned, stale, unused, aligned: Redis strings grow to the highest bit that was set."""
        keys = [f"{self._prefix}{kind}:{source}" for kind in ("confirmed", "learned", "stale", "unused")]
        found = [value or b"" for value in self._redis.mget(keys)]
        longest = max(map(len, found))
        return [int.from_bytes(value.ljust(longest, b"\0"), "big") for value in found]
