"""The run's directory of services, as versions before and after this one write it."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import redis

from tasks.admin.registry import Directory
from tasks.service import Spec
from tasks.topology import Topology


def test_entries_of_another_version_are_read_and_nonsense_is_left_out(redis_url: str, run_name: str, caplog):
    topology = Topology(run_name)
    app: Any = SimpleNamespace(conf=SimpleNamespace(result_backend=redis_url))
    directory, client = Directory(app, topology), redis.Redis.from_url(redis_url)
    key = f"{topology.key_prefix}services"
    try:
        newer = {**Spec("actor.newer", batch=4).as_dict(), "priority": 3}
        entries = {"actor.newer": json.dumps(newer), "actor.older": '{"name": "actor.older"}'}
        client.hset(key, mapping={**entries, "actor.list": "[1]", "actor.text": "{", "actor.number": "5"})
        directory.enter([Spec("actor.add")])
        known = directory.known()
        assert sorted(known) == ["actor.add", "actor.newer", "actor.older"]
        assert known["actor.newer"] == Spec("actor.newer", batch=4)
        assert "cannot be read: b'actor.list'" in caplog.text
    finally:
        client.delete(key)
