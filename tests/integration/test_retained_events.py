"""Tests of retained events: late subscribers get the newest one; without a subscribing service none is kept."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.calling import Calling
from support.waiting import until

from tasks.app import create_app
from tasks.codec.decoder import unpack
from tasks.events import EventDispatcher
from tasks.events.retained import Retained
from tasks.topology import Topology
from workers.servers.ports import free_port


@pytest.fixture(params=["servers", "embedded"])
def calling(request: pytest.FixtureRequest, run_name: str, tmp_path: Path):
    found = request.getfixturevalue(request.param)
    run = Calling(found.broker_url, found.redis_url, run_name, tmp_path)
    try:
        yield run
    finally:
        run.close()


def test_a_late_worker_first_receives_the_newest_earlier_event(calling):
    (first,) = calling.start(1)
    dispatcher = EventDispatcher(calling.app, calling.topology)
    for number in (1, 2, 3):
        dispatcher.fire("counted", number)
    until(lambda: calling.solver.call("actor.events_received") == ([1, 2, 3], []))
    first.kill()
    first.wait()
    calling.start(1)
    until(lambda: calling.solver.call("actor.events_received") == ([3], []))
    dispatcher.fire("counted", 4)
    until(lambda: calling.solver.call("actor.events_received") == ([3, 4], []))


def test_only_the_newest_event_with_a_subscribing_service_is_kept(servers, run_name: str):
    topology = Topology(run_name)
    app = create_app(topology, servers.broker_url, servers.redis_url)
    dispatcher, retained = EventDispatcher(app, topology), Retained(app, topology)
    retained.subscribe(["weights_of_mine"])
    for number in (1, 2):
        dispatcher.fire("weights_of_mine", number)
        dispatcher.fire("wanted_by_nobody", number)
    assert unpack(retained.newest("weights_of_mine") or b"") == 2
    assert retained.newest("wanted_by_nobody") is None
    assert retained.names() == ["wanted_by_nobody", "weights_of_mine"]  # both exchanges are then removed


@pytest.mark.timeout(60, func_only=True)  # it does not wait for Redis
def test_events_are_fired_while_redis_is_away(servers, run_name: str, caplog: pytest.LogCaptureFixture):
    topology = Topology(run_name)
    app = create_app(topology, servers.broker_url, f"redis://127.0.0.1:{free_port()}/0")
    EventDispatcher(app, topology).fire("weights_of_mine", 1)
    assert "not retained" in caplog.text
