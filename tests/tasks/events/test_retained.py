"""Retained events on a real Redis: who comes later has the newest, however firing and subscribing fall together."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import redis

from tasks.events.retained import LIVES, Retained
from tasks.topology import Topology


@pytest.fixture
def make(redis_url: str, run_name: str):
    topology = Topology(run_name)
    app: Any = SimpleNamespace(conf=SimpleNamespace(result_backend=redis_url))
    yield lambda: Retained(app, topology)
    client = redis.Redis.from_url(redis_url)
    for key in client.scan_iter(f"{topology.key_prefix}*"):
        client.delete(key)


def test_an_event_is_retained_from_the_moment_that_somebody_hears_it(make):
    firing, first, second = make(), make(), make()
    assert not firing.keep("weights", b"0")
    first.hear(["weights"])  # between two firings, with no time in between
    assert firing.keep("weights", b"1")
    assert second.newest("weights") == b"1"


def test_an_event_that_was_never_fired_is_retained_when_somebody_already_hears_it(make):
    firing, first = make(), make()
    assert firing.names() == []
    first.hear(["weights"])
    assert firing.keep("weights", b"1")
    assert make().newest("weights") == b"1"


def test_firing_keeps_the_table_of_what_is_heard_alive(make):
    firing, first = make(), make()
    first.hear(["weights"])
    firing.keep("weights", b"1")
    firing._redis.expire(firing._names, 10)
    firing.keep("weights", b"2")
    assert firing._redis.ttl(firing._names) > LIVES - 10
    firing._redis.delete(firing._names)  # Redis lost all
    firing.keep("weights", b"3")
    assert make().keep("weights", b"4") and first.newest("weights") == b"4"
