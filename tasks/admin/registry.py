"""The services of a run, whether or not a worker serves them at the moment: one Redis hash, name -> spec."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import Any

from celery.utils.log import get_logger

from tasks.service import Spec
from tasks.topology import Topology
from warren import redis_client

logger = get_logger(__name__)

TTL = 24 * 3600  # s that the directory outlives the last worker that wrote to it
DELAYS_TTL = 31 * 24 * 3600  # s; longer than any call is delayed
FRESH = 1.0  # s for which a read of the directory is cached


class Directory:
    """The services of one run. Safe to use from any thread."""

    def __init__(self, app: Any, topology: Topology) -> None:
        # result_backend is Redis in every run: chords need it. (`warren_redis`: see tasks/testing.)
        installed = getattr(app, "warren_redis", None)
        self._redis: Any = redis_client.connect(app.conf.result_backend) if installed is None else installed
        self._key = f"{topology.key_prefix}services"
        self._delays_key = f"{topology.key_prefix}delays"
        self._known: dict[str, Spec] = {}
        self._looked_at = float("-inf")

    def enter(self, specs: Iterable[Spec]) -> None:
        """Add or replace services; also keeps the directory alive."""
        entries: Any = {spec.name: json.dumps(spec.as_dict()) for spec in specs}
        if entries:
            with self._redis.pipeline(transaction=True) as pipe:
                pipe.hset(self._key, mapping=entries)
                pipe.expire(self._key, TTL)
                pipe.execute()

    def note_delay(self, name: str, milliseconds: int) -> None:
        """Note a delay of a service's calls, for which there is a queue. Raises redis.RedisError."""
        with self._redis.pipeline(transaction=True) as pipe:
            pipe.sadd(self._delays_key, f"{milliseconds} {name}")
            pipe.expire(self._delays_key, DELAYS_TTL)
            pipe.execute()

    def delays(self) -> list[tuple[str, int]]:
        """Return the services and delays, in ms, that were noted. Raises redis.RedisError."""
        noted: Any = self._redis.smembers(self._delays_key)
        return [(name, int(text)) for text, _, name in (one.decode().partition(" ") for one in noted)]

    def known(self) -> dict[str, Spec]:
        """Return name -> spec of every service, at most FRESH s old. Raises redis.RedisError."""
        if time.monotonic() - self._looked_at > FRESH:
            entries: Any = self._redis.hgetall(self._key)
            self._known = {spec.name: spec for spec in map(_spec, entries, entries.values()) if spec is not None}
            self._looked_at = time.monotonic()
        return self._known

    def find(self, name: str) -> Spec | None:
        """Return the service with that full name, or the only one whose method has that name; else None."""
        known = self.known()
        if name in known:
            return known[name]
        same = [spec for full, spec in known.items() if full.partition(".")[2] == name]
        return same[0] if len(same) == 1 else None


def _spec(name: bytes, text: bytes) -> Spec | None:
    """Read a spec, which a newer version may have written: unknown fields are left out. None if unreadable."""
    try:
        return Spec.from_dict({**json.loads(text), "name": name.decode()})
    except (ValueError, TypeError, AttributeError) as error:
        logger.warning("the run's directory of services has an entry that cannot be read: %s: %s", name[:80], error)
        return None
