"""The account of a run's segments: each was made by an actor, confirmed by the broker, trained on or dropped.

Each actor process numbers its segments. It notes each segment that it has made, before any other process can have it,
and each that the broker has confirmed; the learner notes whether an update used it, or why it was dropped. A note is a
bit in Redis, so noting is idempotent. Segments that were made and neither used nor dropped are in flight.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

LEARNED = "learned"
NOT_KEPT = "not_kept"
STORED = "stored"  # in a replay, from which updates draw
HELD = "held"  # in the replay already: it was stored, and was delivered again
REASONS: Mapping[str, str] = {  # why segments are dropped
    "stale": "too old",
    "reset": "of players that were begun anew since",
    "refused": "refused (the learner's log says why)",
    "failed": "in updates that failed",
    "spare": "of rounds that were not needed",
    "unused": "after the end",
}

# KEYS: names of actor processes (set), totals (hash). ARGV: prefix of the bits, then of each segment its source, its
# number, its steps. `make` counts a segment once; _NOTE also marks it as confirmed if its last argument is 1.
_MAKE = """
local function make(source, number, steps)
  redis.call('SADD', KEYS[1], source)
  if redis.call('SETBIT', ARGV[1] .. 'made:' .. source, number, 1) == 0 then
    redis.call('HINCRBY', KEYS[2], 'made', 1)
    redis.call('HINCRBY', KEYS[2], 'made_steps', steps)
  end
end
"""
_NOTE = f"""{_MAKE}
make(ARGV[2], ARGV[3], ARGV[4])
if ARGV[5] == '1' then redis.call('SETBIT', ARGV[1] .. 'confirmed:' .. ARGV[2], ARGV[3], 1) end
"""
# Also notes the end of each segment, and the number of its steps that an update has used; the other steps of a learned
# segment were too old. The first end stays: a learner may die before it acknowledges. A segment that is stored for the
# second time had been lost with an earlier learner's replay, and is kept after all. The last numbers that tellers gave
# show which calls are repeated, because their answers were lost.
_SETTLE = f"""{_MAKE}
local last = 'told:' .. ARGV[2]
if tonumber(redis.call('HGET', KEYS[2], last) or 0) >= tonumber(ARGV[3]) then return end
redis.call('HSET', KEYS[2], last, ARGV[3])
for at = 4, #ARGV, 5 do
  local source, number, steps, kind, used = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4]
  make(source, number, steps)
  if redis.call('SETBIT', ARGV[1] .. 'settled:' .. source, number, 1) == 1 then
    redis.call('HINCRBY', KEYS[2], 'repeated', 1)
    if kind == 'stored' then
      redis.call('HINCRBY', KEYS[2], 'not_kept', -1)
      redis.call('HINCRBY', KEYS[2], 'not_kept_steps', -used)
    end
  else
    if kind == 'held' then kind = 'stored' end
    redis.call('HINCRBY', KEYS[2], kind, 1)
    redis.call('HINCRBY', KEYS[2], kind .. '_steps', used)
    redis.call('HINCRBY', KEYS[2], 'stale_steps', steps - used)
  end
end
"""


class Segment(NamedTuple):
    """A segment by its number in the actor process `source`. `steps`: environment steps, or a player's decisions."""

    source: str
    number: int
    steps: int


class Settled(NamedTuple):
    """The end of a segment: its `kind`, and how many of its steps were `used`; all, unless the kind is LEARNED."""

    segment: Segment
    kind: str
    used: int


class Count(NamedTuple):
    """A number of segments, and the sum of their steps."""

    segments: int = 0
    steps: int = 0


NONE = Count()


@dataclass(frozen=True)
class Account:
    """Segments of a run: made = learned + stored + dropped, by the reason, + in flight.

    If some steps of a learned segment were too old, they are among the steps of `stale`. Settled segments count as made
    and as confirmed, even if the actor was killed before it could note that.
    """

    made: Count
    learned: Count
    dropped: Mapping[str, Count]  # by the names of REASONS
    unsent: int  # segments that were made but not confirmed by a broker: an actor has, or had, them
    missing: int  # segments that were confirmed but not settled: still in a queue, or lost
    repeated: int  # deliveries of a segment that was settled already (after a learner died)
    stored: Count = NONE  # segments that came into a replay
    not_kept: Count = NONE  # those of `stored` whose replay ended with its learner

    @property
    def in_flight(self) -> Count:
        """Segments that were neither learned from, nor stored, nor dropped."""
        gone = [self.learned, self.stored, *self.dropped.values()]
        steps = self.made.steps - sum(count.steps for count in gone)
        return Count(self.unsent + self.missing, steps)

    @property
    def confirmed(self) -> int:
        """Segments that have reached a learner, or the broker."""
        settled = [self.learned, self.stored, *self.dropped.values()]
        return sum(count.segments for count in settled) + self.missing


class Ledger:
    """The segments of one run; keys begin with `prefix`. All methods raise redis.RedisError."""

    def __init__(self, redis: Any, prefix: str) -> None:
        self._redis, self._prefix = redis, f"{prefix}ledger:"
        self._keys = [f"{self._prefix}sources", f"{self._prefix}totals"]
        self._note, self._settle = (redis.register_script(text) for text in (_NOTE, _SETTLE))

    def make(self, segment: Segment) -> None:
        """Note that an actor has made a segment; called before any other process can have it."""
        self._note(keys=self._keys, args=[self._prefix, *segment, 0])

    def confirm(self, segment: Segment) -> None:
        """Note that the broker has confirmed a segment."""
        self._note(keys=self._keys, args=[self._prefix, *segment, 1])

    def settle(self, settled: Iterable[Settled], teller: str, number: int) -> None:
        """Note the ends of segments, in one round trip.

        `number`, from 1 on, counts this teller's calls: a call with the number of an earlier one changes nothing.
        """
        told = [part for segment, kind, used in settled for part in (*segment, kind, used)]
        self._settle(keys=self._keys, args=[self._prefix, teller, number, *told])

    def keep(self, kept: Count) -> None:
        """Note that a replay begins with `kept` of all that was ever stored; the rest ended with an earlier learner."""
        (stored,) = self._counted(STORED)
        lost = Count(max(stored.segments - kept.segments, 0), max(stored.steps - kept.steps, 0))
        self._redis.hset(self._keys[1], mapping={NOT_KEPT: lost.segments, f"{NOT_KEPT}_steps": lost.steps})

    def _counted(self, *kinds: str) -> list[Count]:
        found = {name.decode(): int(number) for name, number in self._redis.hgetall(self._keys[1]).items()}
        return [Count(found.get(kind, 0), found.get(f"{kind}_steps", 0)) for kind in kinds]

    def account(self) -> Account:
        """Return the account of the run so far."""
        kinds = ("made", LEARNED, STORED, NOT_KEPT, "repeated")
        made, learned, stored, not_kept, repeated, *dropped = self._counted(*kinds, *REASONS)
        unsent = missing = 0
        for source in self._redis.smembers(self._keys[0]):
            made_bits, confirmed, settled = self._bits(source.decode())
            unsent += (made_bits & ~confirmed & ~settled).bit_count()
            missing += (confirmed & ~settled).bit_count()
        by_reason = dict(zip(REASONS, dropped, strict=True))
        return Account(made, learned, by_reason, unsent, missing, repeated.segments, stored, not_kept)

    def _bits(self, source: str) -> list[int]:
        """Return the bits made, confirmed and settled, aligned: Redis strings grow to the highest bit that was set."""
        keys = [f"{self._prefix}{kind}:{source}" for kind in ("made", "confirmed", "settled")]
        found = [value or b"" for value in self._redis.mget(keys)]
        longest = max(map(len, found))
        return [int.from_bytes(value.ljust(longest, b"\0"), "big") for value in found]
