"""A league's run that the page watches: its timeline, kept up to date from Redis while the run goes on."""

from __future__ import annotations

import contextlib
import json
import threading
from typing import Any

import redis

from league.models.snapshots import RETURNS
from league.redis.event_stream import EventStream
from league.redis.shared_returns import SharedReturns
from tasks.topology import key_prefix
from warren import redis_client
from warren.errors import ConfigurationError, WarrenError
from workers.dashboard import curves, measured, views
from workers.dashboard.catalogue import Run, account
from workers.dashboard.timeline import Timeline
from workers.runtime.lease import living
from workers.runtime.segment_ledger import Ledger
from workers.servers import record

ANSWERS = 3.0  # s within which Redis has to answer
LIVE, AWAY, ENDED = "live", "away", "ended"  # the state of the run's store


class Watched:
    """One run; methods may be called by several threads. `problem`: why nothing newer is known, as a sentence."""

    def __init__(self, run: Run) -> None:
        self.run, self.timeline = run, Timeline(run.league)
        self.state, self.problem = ENDED, ""
        self._lock = threading.Lock()
        self._client: redis.Redis | None = None
        self._url = ""
        self._name = ""
        self._told: dict[str, Any] = {}
        self._event = ""  # the last event that `look` reported
        self._shared: SharedReturns | None = None  # returns in the store that `_client` is connected to
        self._measured: tuple[object, measured.Table] | None = None  # (version of the returns, their table)
        self._terms: tuple[float | None, float] | None = None

    def refresh(self) -> bool:
        """Take in new events; return True if anything changed. Errors are kept in `state` and `problem`."""
        with self._lock:
            before = self.state
            try:
                store = self._store()
                changed = self.timeline.follow(store)
                self.state, self.problem = (ENDED if store is None else LIVE), ""
            except (redis.RedisError, OSError) as error:
                changed, self._url = False, ""
                self.state, self.problem = AWAY, f"the run's Redis does not answer: {error}"
            except WarrenError as error:  # an event that this version does not know; or the run ends at this moment
                changed, self.problem = False, str(error)
            return changed or self.state != before

    def look(self) -> dict[str, Any] | None:
        """Return the changes since the last look, for all pages together; None if there are none."""
        changed = self.refresh()
        newest = {"scores": curves.last(self.run.folder / "evaluation.jsonl"), "learners": self._learners()}
        if not changed and newest == self._told:
            return None
        self._told = newest
        with self.timeline.lock:
            fold = self.timeline.now()
            changes, self._event = fold.changes(), fold.history.last_event
            return {
                "state": self.state,
                "problem": self.problem,
                "anew": changes.anew,
                "cells": [] if changes.anew else views.changed_cells(fold, changes.pairs),
                "players": [] if changes.anew else views.touched(fold, changes.slots),
                **views.moving(fold),
                **newest,
            }

    def hello(self) -> dict[str, Any]:
        """Return the last event whose changes all pages were sent."""
        return {"hello": self._event}

    def returns(self) -> measured.Table:
        """Return the mean returns between frozen players: Redis's while the run goes on, else the folder's."""
        with self._lock:
            shared = None
            with contextlib.suppress(redis.RedisError, OSError):
                if (store := self._store()) is not None:
                    shared = self._shared = self._shared or SharedReturns(store.redis, store.prefix)
                    shared.refresh()
            path = self.run.league / RETURNS
            version = shared.version if shared is not None else path.stat().st_mtime_ns if path.exists() else None
            known = shared is not None, version
            if self._measured is None or self._measured[0] != known:
                found = shared or measured.saved(self.run.league)
                if found.known_slots and self._terms is None:  # the game is made for this, which takes a while
                    self._terms = measured.terms(self.run.settings())
                self._measured = known, measured.Table(found, *(self._terms or (None, measured.CONFIDENCE)))
            return self._measured[1]

    def facts(self) -> dict[str, Any]:
        """Return what a live run's servers know beside the league: processes and segments."""
        found: dict[str, Any] = {"processes": [], "segments": account(self.run.folder)}
        with self._lock, contextlib.suppress(redis.RedisError, OSError, ValueError):
            if self._store() is not None and self._client is not None:
                prefix = key_prefix(self._name)
                found["processes"] = [{"process": one.work, "where": one.where} for one in living(self._client, prefix)]
                known = Ledger(self._client, prefix).account()
                counts = {"learned": known.learned, "stored": known.stored, **known.dropped}
                found["segments"] = {
                    "made": known.made.segments,
                    **{name: count.segments for name, count in counts.items()},
                    "in flight": known.in_flight.segments,
                    "repeated": known.repeated,
                }
        return found

    def _learners(self) -> dict[str, dict[str, Any]]:
        """Return the newest figures of each learner."""
        return {
            path.parent.name: curves.last(path) or {}
            for path in sorted(self.run.folder.glob("players/*/metrics.jsonl"))
        }

    def _store(self) -> EventStream | None:
        """Return the league's stream; None where the run has ended. Raises redis.RedisError."""
        try:
            found = record.read(self.run.folder)
        except ConfigurationError:
            return None
        if not record.runs_on(found):
            return None
        if self._client is None or found.redis_url != self._url:
            self._client = redis_client.connect(found.redis_url, socket_timeout=ANSWERS, socket_connect_timeout=ANSWERS)
            self._url, self._name = found.redis_url, record.name_of(self.run.folder) or ""
            self._shared = None
        prefix = f"{key_prefix(self._name)}league:"
        if not self._client.exists(f"{prefix}events"):
            return None  # the stream is not there yet, or gone: the folder has all
        return EventStream(self._client, prefix)


def as_event(message: dict[str, Any]) -> bytes:
    """Return a message as a server-sent event."""
    return b"data: " + json.dumps(message, separators=(",", ":")).encode() + b"\n\n"
