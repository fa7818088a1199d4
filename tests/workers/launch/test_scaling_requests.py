"""A launcher that is asked for more or fewer processes while Redis is away."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from celery import Celery

from tasks.topology import Topology
from workers.config.schema import Config
from workers.launch.scaling import Scaling


@pytest.mark.parametrize("change", ["+1", "-1"])
def test_nothing_is_done_by_half_and_the_launcher_lives(monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    def away(*_: Any) -> None:
        raise redis.ConnectionError("Redis is away")

    config = Config(run="some-run")
    store, app = SimpleNamespace(set=away), Celery("launcher", broker="memory://")
    session: Any = SimpleNamespace(config=config, app=app, redis=store, topology=Topology("some-run"))
    supervisor: Any = SimpleNamespace(add=pytest.fail, remove=pytest.fail)
    scaling = Scaling(session, supervisor, print)
    monkeypatch.setattr(scaling, "_checked", lambda wanted: {"actors": 2 + int(wanted["actors"])})
    scaling._groups["actors"].members = ["actor-0", "actor-1"]
    answer: Future[dict[str, Any]] = Future()
    scaling._requests.put(({"actors": change}, answer))
    scaling.look()
    assert "Redis is away" in answer.result(0)["error"]
    assert scaling.counts == {"actors": 2}
