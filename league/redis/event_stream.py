"""The stream of a league's events in Redis: reading it, and trimming it behind a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from league.redis.texts import pairs, text
from league.state.fields import event_order

RESTORED = "restored"  # the event with which a restored league's stream begins: its id stands for all events before


class EventStream:
    """The events of one league, `PREFIXevents`; ids are "MS-NUMBER", MS of Unix time."""

    def __init__(self, redis: Any, prefix: str) -> None:
        self.redis, self.prefix = redis, prefix

    def last_event(self) -> str:
        """Return the id of the newest event; "0-0" when there is none."""
        found = self.redis.xrevrange(f"{self.prefix}events", count=1)
        return text(found[0][0]) if found else "0-0"

    def holds(self, entry: str, event: Mapping[str, str] | None = None) -> bool:
        """Return True if the stream holds an event of this id that is also equal to `event`, if one is given.

        Events of two leagues may share an id, if written in the same millisecond. A checkpoint as `event`, or the event
        that a restored league begins with in the stream, counts as equal.
        """
        found = self.redis.xrange(f"{self.prefix}events", min=entry, max=entry, count=1)
        if not found or event is None or event["event"] == "checkpoint":
            return bool(found)
        held = pairs(found[0][1])
        return held["event"] == RESTORED or held == dict(event)

    def stream_length(self) -> int:
        """Return how many events the stream holds."""
        return int(self.redis.xlen(f"{self.prefix}events"))

    def checkpoint(self) -> tuple[str, dict[str, str]] | None:
        """Return (id, event) of the checkpoint that stands for all trimmed events; None if none were trimmed."""
        found = pairs(self.redis.hgetall(f"{self.prefix}checkpoint"))
        return (found.pop("id"), found) if found else None

    def trim(self, event: str, checkpoint: Mapping[str, str]) -> None:
        """Replace the event of this id and all before it by `checkpoint`.

        The event itself stays in the stream so that `holds` finds it, as do some that share a node with it.
        """
        with self.redis.pipeline(transaction=True) as pipeline:
            pipeline.hset(f"{self.prefix}checkpoint", mapping={"id": event, **checkpoint})
            # limit=0 means no limit: without it Redis removes at most 10,000 events per call, fewer than may arrive.
            pipeline.xtrim(f"{self.prefix}events", minid=event, approximate=True, limit=0)
            pipeline.execute()

    def events(self, after: str = "0", until: str = "+", batch: int = 2000) -> Iterator[tuple[str, dict[str, str]]]:
        """Yield (id, event) in order, after the id `after` and up to `until`.

        If events after `after` were trimmed, a "checkpoint" event comes first, which stands for all before it.
        """
        while True:
            with self.redis.pipeline(transaction=True) as pipeline:
                pipeline.hget(f"{self.prefix}checkpoint", "id")
                pipeline.xrange(f"{self.prefix}events", min=f"({after}", max=until, count=batch)
                base, entries = pipeline.execute()
            if base is not None and event_order(text(base)) > event_order(after):
                found = self.checkpoint()
                assert found is not None  # once there is a checkpoint it is only ever replaced
                after, checkpoint = found
                if until != "+" and event_order(after) > event_order(until):
                    return
                yield after, checkpoint
                continue
            for entry, fields in entries:
                after = text(entry)
                yield after, pairs(fields)
            if len(entries) < batch:
                return
