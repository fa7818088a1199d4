"""Tests of the number of segments that may wait: as many as there are actors at present."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import redis

from tasks.topology import Topology
from workers.config.schema import Config, EnvConfig
from workers.runtime import actor_count
from workers.runtime.actor_count import SegmentsWaiting, count_key


class Redis(dict[str, Any]):
    """Redis's GET, counted."""

    reads, away = 0, False

    def get(self, key: str, default: Any = None) -> Any:
        self.reads += 1
        if self.away:
            raise redis.ConnectionError("Redis is away")
        return super().get(key, default)


def session_of(**settings: Any) -> Any:
    config = Config(trial="t", run="r", env=EnvConfig(id="e"), actors=2, **settings)
    return SimpleNamespace(config=config, redis=Redis(), topology=Topology("r"))


def test_the_number_of_waiting_segments_follows_that_of_actors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actor_count, "READ_EVERY", 0.0)
    session = session_of()
    waiting = SegmentsWaiting(session)
    assert waiting() == 2
    session.redis[count_key(session, "actors")] = b"9"
    assert waiting() == 9
    session.redis.away = True
    assert waiting() == 9, "what was read last holds while Redis is away"


def test_the_number_is_read_once_a_second_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actor_count, "READ_EVERY", 3600.0)
    session = session_of()
    waiting = SegmentsWaiting(session)
    assert {waiting() for _ in range(100)} == {2}
    assert session.redis.reads == 1


def test_a_configured_batch_does_not_follow_the_number_of_actors() -> None:
    session = session_of(batch_segments=7)
    session.redis[count_key(session, "actors")] = b"5"
    assert SegmentsWaiting(session)() == 7
    assert session.redis.reads == 0
