"""Tests that roles started by hand hear the end of their run, at once or when they subscribe later."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from support.league_run import SMALL
from support.roles_by_hand import Roles

from tasks.app import create_app
from tasks.events import STATUS, EventDispatcher
from tasks.topology import Topology
from workers.config.schema import Config
from workers.runtime import ended as module
from workers.runtime.ended import follow_run
from workers.runtime.run_status import CLOSED, Ending
from workers.servers import Servers


@pytest.mark.slow
def test_league_roles_started_by_hand_hear_the_end(servers: Servers, tmp_path: Path, run_name: str) -> None:
    topology = Topology(run_name)
    events = EventDispatcher(create_app(topology, servers.broker_url, servers.redis_url), topology)
    roles = Roles(servers, tmp_path, run_name)
    try:
        league = [setting for setting in SMALL if not setting.startswith("experiment")]
        processes = [roles.start(role, "league=rps", *league) for role in ("league", "evaluator", "actor")]
        while any(one.process.poll() is None for one in processes):
            events.fire(STATUS, {"state": CLOSED})  # repeated, since a role that is not up yet hears none
            time.sleep(0.25)
        for process in processes:
            roles.ended(process)
    finally:
        roles.close()


class Redis(set[str]):
    """The keys of a Redis."""

    def exists(self, key: str) -> bool:
        return key in self

    def set(self, key: str, value: str, ex: int) -> None:
        self.add(key)


@pytest.fixture
def subscribed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[dict[str, Callable[[Any], None]], Callable[[], None]]]:
    """Return each subscription's handlers and its callback for each connection."""
    made: list[tuple[dict[str, Callable[[Any], None]], Callable[[], None]]] = []

    def subscription(app: Any, topology: Any, handlers: Any, subscriber: str, on_connected: Any) -> Any:
        made.append((handlers, on_connected))
        return SimpleNamespace(start=lambda: None)

    monkeypatch.setattr(module, "Subscription", subscription)
    return made


def test_a_role_that_missed_the_end_stops_when_it_has_subscribed(subscribed: Any) -> None:
    session: Any = SimpleNamespace(redis=Redis(), app=None, config=Config(league={}), topology=Topology("r"))
    stopped: list[str] = []
    follow_run(session, "evaluator-1", lambda: stopped.append("evaluator"))
    ((handlers, on_connected),) = subscribed
    on_connected()
    handlers[STATUS]({"state": "training"})
    handlers[STATUS]({"state": "finished"})
    assert not stopped, "a player has finished: the league goes on"
    Ending(session.redis, session.topology.key_prefix).close()
    on_connected()
    assert stopped == ["evaluator"]


def test_the_note_of_the_end_is_gone_when_the_run_begins_anew(redis_url: str, run_name: str) -> None:
    client = redis.Redis.from_url(redis_url)
    ending = Ending(client, f"warren.{run_name}:")
    ending.close()
    session: Any = SimpleNamespace(
        redis=client, topology=SimpleNamespace(key_prefix=f"warren.{run_name}:"), declare=lambda: None
    )
    module.open_run(session)
    assert ending.state() is None
