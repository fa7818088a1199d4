"""Tests of a broker that cannot be reached, or says nothing: whoever waits for it is told in time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from support.waiting import PATIENCE
from support.wire import Wire

from tasks import brokers
from tasks.admin.cleanup import remove_run
from tasks.admin.registry import Directory
from tasks.amqp import connection
from tasks.app import create_app
from tasks.events import EventDispatcher, over_amqp
from tasks.service import Spec
from tasks.solver import Solver
from tasks.topology import Topology
from warren.errors import BrokerError, DeadlinePassed
from workers.servers import Servers

ADD = Spec("actor.add")


class Far:
    """A run whose `solver` reaches the broker by a `wire`; nobody answers the calls of its service."""

    def __init__(self, servers: Servers, run: str) -> None:
        self.topology, self._servers = Topology(run), servers
        self.wire = Wire(servers.broker_url)
        self.app = create_app(self.topology, self.wire.url, servers.redis_url)
        self.near = create_app(self.topology, servers.broker_url, servers.redis_url)
        self._link = brokers.of(self.near).connect()
        queue = self.topology.service_queue(ADD.name)
        self._link.declare(queue)
        self._link.consume(queue.name, "calls")
        Directory(self.near, self.topology).enter([ADD])
        self.solver = Solver(self.app, self.topology, deadline=PATIENCE)

    def close(self) -> None:
        self.wire.close()
        self.solver.close()
        self._link.close()
        remove_run(self.near, self.near.backend.client, self.topology)


@pytest.fixture
def far(servers: Servers, run_name: str) -> Iterator[Far]:
    far = Far(servers, run_name)
    yield far
    far.close()


def soon(function: Any, *arguments: Any) -> Any:
    """Return `function(*arguments)`. Raises TimeoutError if it hangs."""
    pool = ThreadPoolExecutor(1)
    try:
        return pool.submit(function, *arguments).result(PATIENCE)
    finally:
        pool.shutdown(wait=False)


def test_a_call_can_be_cancelled_while_the_broker_is_out_of_reach(far):
    first, second = far.solver.send("actor.add", 1), far.solver.send("actor.add", 2)
    assert first.cancel(), "the connection by which workers are told is open from here on"
    far.wire.close()
    assert soon(second.cancel)
    assert second.cancelled()


def test_an_event_waits_for_a_silent_broker_once_alone(far, monkeypatch):
    events = EventDispatcher(far.app, far.topology)
    events.fire("weights", 1)
    monkeypatch.setattr(over_amqp, "SEND_TIMEOUT", 0.5)
    monkeypatch.setattr(connection, "METHOD_TIMEOUT", 3600.0)
    far.wire.silence()
    with pytest.raises(BrokerError, match=r"event 'weights' was not sent.* confirmed nothing"):
        soon(events.fire, "weights", 2)


@pytest.mark.parametrize("attended", [False, True], ids=["waited for", "with a callback"])
def test_a_silent_broker_does_not_hold_up_the_end_of_a_call(far, monkeypatch, attended):
    monkeypatch.setattr(connection, "METHOD_TIMEOUT", 3600.0)
    handle, ended = far.solver.send("actor.add", 1, deadline=2.0), threading.Event()
    far.wire.silence()
    if attended:
        handle.add_done_callback(lambda _: ended.set())
        assert ended.wait(PATIENCE)
    with pytest.raises(DeadlinePassed):
        soon(handle.result)


def test_a_count_of_consumers_that_was_not_answered_leaves_no_channel(far):
    link, queue = brokers.of(far.app).connect(), far.topology.service_queue(ADD.name).name
    assert link.consumers(queue) == 1
    open_before = len(link.connection.channels)
    far.wire.silence()
    assert link.consumers(queue, 0.0) is link.consumers(queue, 0.0) is None
    far.wire.speak()
    assert link.consumers(queue) == 1 and link.consumers("warren.no-such-queue") == 0
    assert len(link.connection.channels) == open_before and link.alive
    link.close()


def test_a_chord_that_cannot_be_sent_is_an_error_of_the_broker(far):
    far.wire.close()
    with pytest.raises(BrokerError, match="the chord was not sent"):
        soon(far.solver.gather, [("actor.add", 1)], "actor.add")
