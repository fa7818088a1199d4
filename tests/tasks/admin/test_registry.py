"""Test of the run's directory of services with entries of other versions."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from tasks.admin.registry import Directory
from tasks.service import Spec
from tasks.topology import Topology


def test_entries_of_other_versions_are_read_and_invalid_ones_left_out(caplog):
    app: Any = SimpleNamespace(conf=SimpleNamespace(result_backend="redis://127.0.0.1:1/0"))
    directory = Directory(app, Topology("run"))
    newer = {**Spec("actor.newer", batch=4).as_dict(), "priority": 3}
    entries = {b"actor.newer": json.dumps(newer).encode(), b"actor.older": b'{"name": "actor.older"}'}
    nonsense = {b"actor.list": b"[1]", b"actor.text": b"{", b"actor.number": b"5"}
    directory._redis = SimpleNamespace(hgetall=lambda key: {**entries, **nonsense})  # type: ignore[assignment]
    known = directory.known()
    assert known == {"actor.newer": Spec("actor.newer", batch=4), "actor.older": Spec("actor.older")}
    assert "cannot be read: b'actor.list'" in caplog.text
    assert directory.find("newer") == known["actor.newer"]
