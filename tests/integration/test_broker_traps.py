"""Tests of broker faults: a channel closed for an overdue acknowledgement, a deleted exchange, broken connections."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import brokers
from support.calling import Calling
from support.obedient import ObedientWorker, close_connections
from support.waiting import PATIENCE, until

from tasks.client.bounded_sender import BoundedSender
from tasks.events import EventDispatcher
from tasks.solver import Solver
from warren.errors import BrokerError, CallError
from workers.servers import Servers

# In ms. By default RabbitMQ checks once per minute for overdue messages; a channel reads both settings when opened.
IMPATIENT = {"consumer_timeout": 1000, "channel_tick_interval": 200}


@pytest.fixture
def impatient(private_servers: Servers) -> Iterator[Servers]:
    """Yield a RabbitMQ that closes a consumer's channel when it holds a message for over a second."""
    before = {}
    for name, milliseconds in IMPATIENT.items():
        (before[name],) = brokers.control(
            private_servers, "eval", f"{{ok, Was}} = application:get_env(rabbit, {name}), "
            f"application:set_env(rabbit, {name}, {milliseconds}), Was.",
        )  # fmt: skip
    yield private_servers
    for name, was in before.items():
        brokers.control(private_servers, "eval", f"application:set_env(rabbit, {name}, {was}).")


def test_a_worker_survives_its_channel_being_closed_for_an_overdue_task(
    impatient: Servers, tmp_path: Path, run_name: str
) -> None:
    log = tmp_path / "log"
    with ObedientWorker(run_name, impatient.broker_url, impatient.redis_url, log) as worker:
        worker.do("wait", "held", ignore_result=True)
        worker.noted("began", "held")
        until(lambda: "delivery acknowledgement" in log.read_text(), "the broker's complaint")
        worker.let_go()
        worker.noted("ended", "held", times=2)  # the acknowledgement failed, so it was redelivered
        assert worker.do("return", "after").get(timeout=PATIENCE) == "after"
        assert worker.process.poll() is None


def test_a_service_that_takes_too_long_answers_and_its_worker_goes_on(
    impatient: Servers, tmp_path: Path, run_name: str
) -> None:
    calling = Calling(impatient.broker_url, impatient.redis_url, run_name, tmp_path)
    try:
        (process,) = calling.start(1)
        assert calling.solver.call("actor.sleep", 3.0) == process.pid
        assert calling.solver.call("actor.add", 1, deadline=PATIENCE) == 2
        assert process.poll() is None
    finally:
        calling.close()


def delete_exchange(calling: Calling, name: str) -> None:
    with calling.app.connection_for_write() as connection, connection.channel() as channel:
        channel.exchange_delete(name)


def test_calls_to_a_deleted_exchange_fail_with_an_error(calling: Calling) -> None:
    calling.start(1)
    solver = Solver(calling.app, calling.topology, patience=2.0, deadline=30.0)
    assert solver.call("actor.add", 1) == 2
    solver.call("actor.push", "before")
    assert solver.flush(PATIENCE) == 0
    delete_exchange(calling, calling.topology.service.name)
    with pytest.raises((CallError, BrokerError)):
        solver.call("actor.add", 1, deadline=3.0)
    delete_exchange(calling, calling.topology.service.name)
    solver.call("actor.push", "after")
    lost = 0
    try:
        lost = solver.flush(20.0)
    except BrokerError:
        lost = solver.failed
    until(lambda: lost == 1 or calling.ran("after") == 1)
    solver.close()


def test_an_event_for_a_deleted_exchange_fails_or_declares_it_again(calling: Calling) -> None:
    events = EventDispatcher(calling.app, calling.topology)
    events.fire("stated", 1)
    delete_exchange(calling, calling.topology.event("stated").name)
    for _ in range(2):
        with contextlib.suppress(BrokerError):
            events.fire("stated", 2)
    events.fire("stated", 3)
    events.close()
    with calling.app.connection_for_write() as connection:  # raises NotFound where it is not there again
        calling.topology.event("stated")(connection.default_channel).declare(passive=True)


def test_a_segment_for_a_deleted_exchange_fails_within_the_senders_patience(calling: Calling) -> None:
    topology, stopping = calling.topology, threading.Event()
    with calling.app.connection_for_write() as connection, connection.channel() as channel:
        for queue in topology.declared():
            queue(channel).declare()
    sender = BoundedSender(calling.app, topology.learner_queue(), lambda: 8, stopping, patience=2.0)
    assert sender.send("learner.learn", ({"number": 0},))
    delete_exchange(calling, topology.learner.name)
    with pytest.raises(BrokerError, match=r"no exchange .*; was the run removed from the broker"):
        sender.send("learner.learn", ({"number": 1},))


def test_a_redis_worker_serves_again_after_its_idle_connections_broke(
    embedded: Servers, tmp_path: Path, run_name: str
) -> None:
    with ObedientWorker(run_name, embedded.broker_url, embedded.redis_url, tmp_path / "log") as worker:
        for turn in range(3):
            assert worker.do("return", turn).get(timeout=PATIENCE) == turn
            close_connections(embedded)
        with worker.app.connection_for_write() as connection:
            until(
                lambda: worker.app.control.ping(
                    timeout=5.0, destination=[f"obedient@{run_name}"], connection=connection
                )
            )
        assert worker.do("return", "last").get(timeout=PATIENCE) == "last"
