"""Which segments were confirmed and which were used: a bit each in Redis, so that none is lost uncounted.

Each actor process numbers its segments. It sets a bit when the broker has confirmed one; the learner sets a bit when
an update has used one, or when it dropped one, by the reason. What is confirmed and in none is still on its way.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

KINDS = ("learned", "stale", "reset", "refused", "unused", "confirmed")  # what is several of these counts as the first


@dataclass(frozen=True)
class Account:
    """Segments of a run. `repeated`: deliveries of a segment that was used already (after a learner died).

    What was used counts as confirmed, also where the actor was killed before it could say so. The rest adds up to it:
    confirmed = learned + stale + reset + unused + refused + missing.
    """

    confirmed: int
    learned: int
    stale: int
    repeated: int
    unused: int  # given up at the end of the run
    missing: int  # none of these: still in a queue, or lost
    refused: int = 0  # damaged, or no update could be made with them
    reset: int = 0  # of a league's player that was begun anew since


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
        refused: Iterable[tuple[str, int]] = (),
        reset: Iterable[tuple[str, int]] = (),
    ) -> None:
        """Segments, each (source, number): an update has used it, it was too old, came after the end, was refused, was
        of a player that has been begun anew.
        """
        given = {"learned": learned, "stale": stale, "unused": unused, "refused": refused, "reset": reset}
        settled = {kind: list(segments) for kind, segments in given.items()}
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
        counted = dict.fromkeys(KINDS, 0)
        for source in self._redis.smembers(f"{self._prefix}sources"):
            rest = 0  # what counts as something already
            for kind, bits in zip(KINDS, self._bits(source.decode()), strict=True):
                counted[kind] += (bits & ~rest).bit_count()
                rest |= bits
        repeated = int(self._redis.get(f"{self._prefix}repeated") or 0)
        missing = counted.pop("confirmed")
        return Account(sum(counted.values()) + missing, repeated=repeated, missing=missing, **counted)

    def _bits(self, source: str) -> list[int]:
        """One of each of KINDS, aligned: Redis strings grow to the highest bit that was set."""
        keys = [f"{self._prefix}{kind}:{source}" for kind in KINDS]
        found = [value or b"" for value in self._redis.mget(keys)]
        longest = max(map(len, found))
        return [int.from_bytes(value.ljust(longest, b"\0"), "big") for value in found]
