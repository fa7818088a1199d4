"""Tests of back-pressure: a sender to a full queue waits, and meanwhile nothing is lost or sent twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from support.waiting import PATIENCE, until

from tasks.admin.cleanup import Depths
from tasks.app import create_app
from tasks.client.bounded_sender import BoundedSender
from tasks.topology import Topology
from warren.errors import BrokerError
from workers.servers import Servers

BOUND = 2


class Sending:
    """A sender to a bounded queue, and access to that queue."""

    def __init__(self, servers: Servers, run: str) -> None:
        self.topology = Topology(run, learner_bound=BOUND)
        self.app = create_app(self.topology, servers.broker_url, servers.redis_url)
        self.stopping = threading.Event()
        self.bound = BOUND
        self.sender = BoundedSender(self.app, self.topology.learner_queue(), lambda: self.bound, self.stopping)
        self.depths = Depths(self.app, self.topology)
        with self.app.connection_for_write() as connection, connection.channel() as channel:
            for queue in self.topology.declared():
                queue(channel).declare()

    def send(self, number: int) -> bool:
        return self.sender.send("learner.learn", ({"number": number},))

    def in_background(self, number: int) -> tuple[threading.Thread, list[bool]]:
        results: list[bool] = []
        thread = threading.Thread(target=lambda: results.append(self.send(number)), daemon=True)
        thread.start()
        return thread, results

    def waiting(self) -> int:
        return self.depths.read()["learner.main"]

    def take(self) -> int:
        """Consume one message; return its number."""
        with self.app.connection_for_read() as connection:
            queue = self.topology.learner_queue()(connection.default_channel)
            message = until(lambda: queue.get(accept=["warren"]), "a message")
            message.ack()
            args, _, _ = message.decode()
            return int(args[0]["number"])


@pytest.fixture(params=["rabbitmq", "embedded"])
def sending(request: pytest.FixtureRequest, run_name: str) -> Iterator[Sending]:
    servers: Servers = request.getfixturevalue("servers" if request.param == "rabbitmq" else "embedded")
    sending = Sending(servers, run_name)
    yield sending
    sending.stopping.set()
    sending.depths.close()


def test_a_sender_to_a_full_queue_waits_until_there_is_room(sending: Sending) -> None:
    assert sending.send(0)
    assert sending.send(1)
    looked = sending.sender.looked
    thread, results = sending.in_background(2)
    until(lambda: sending.sender.looked > looked + 1, "a look that found no room")
    began = time.monotonic()
    until(lambda: sending.sender.looked > looked + 4, "some more looks")
    waited = time.monotonic() - began
    assert not results, "the message was sent to a full queue"
    assert sending.waiting() == BOUND
    assert sending.take() == 0
    thread.join(PATIENCE)
    assert results == [True]
    assert sending.waiting() == BOUND
    assert [sending.take(), sending.take()] == [1, 2]
    assert sending.waiting() == 0
    assert sending.sender.confirmed == 3
    assert sending.sender.waited > waited > 0.0


def test_a_sender_that_waits_follows_a_bound_that_changes(sending: Sending) -> None:
    sending.bound = 1
    assert sending.send(0)
    thread, results = sending.in_background(1)
    until(lambda: sending.sender.looked > 3, "some looks at the queue")
    assert not results and sending.waiting() == 1
    sending.bound = 2  # one actor more
    thread.join(PATIENCE)
    assert results == [True] and sending.waiting() == 2


def test_nothing_is_lost_or_duplicated_under_back_pressure(sending: Sending) -> None:
    def send_all() -> None:
        for number in range(60):
            sending.send(number)

    thread = threading.Thread(target=send_all, daemon=True)
    thread.start()
    taken, deepest = [], 0
    for _ in range(60):
        deepest = max(deepest, sending.waiting())
        taken.append(sending.take())
    thread.join(PATIENCE)
    assert taken == list(range(60))
    assert sending.waiting() == 0
    assert deepest <= BOUND


def test_stopping_ends_the_wait_without_sending_the_message(sending: Sending) -> None:
    for number in range(BOUND):
        sending.send(number)
    looked = sending.sender.looked
    thread, results = sending.in_background(9)
    until(lambda: sending.sender.looked > looked + 1, "a look that found no room")
    sending.stopping.set()
    thread.join(PATIENCE)
    assert results == [False]
    assert [sending.take() for _ in range(BOUND)] == list(range(BOUND))
    assert sending.waiting() == 0


def test_a_sender_that_is_stopping_sends_nothing(sending: Sending) -> None:
    sending.stopping.set()
    assert sending.send(0) is False
    assert sending.waiting() == 0


@pytest.mark.timeout(240)  # its attempts end
@pytest.mark.parametrize("url", ["amqp://guest:guest@127.0.0.1:1//", "redis://127.0.0.1:1/0"])
def test_a_broker_that_stays_away_is_an_error_when_patience_ends(url: str, run_name: str) -> None:
    topology = Topology(run_name)
    app = create_app(topology, url, "redis://127.0.0.1:1/0")
    sender = BoundedSender(app, topology.learner_queue(), lambda: 2, threading.Event(), patience=0.3)
    with pytest.raises(BrokerError, match=r"the broker has been away for 0 s|been away for .* s"):
        sender.send("learner.learn", (1,))
    assert sender.confirmed == 0


def test_a_sender_goes_on_once_the_broker_is_back(servers: Servers, run_name: str, monkeypatch: Any) -> None:
    sending = Sending(servers, run_name)
    assert sending.send(0)
    real = sending.app.send_task
    losses = iter([ConnectionResetError("reset"), BrokenPipeError("pipe")])

    def unreliable(*args: Any, **kwargs: Any) -> Any:
        if error := next(losses, None):
            raise error
        return real(*args, **kwargs)

    monkeypatch.setattr(sending.app, "send_task", unreliable)
    assert sending.send(1)
    assert [sending.take(), sending.take()] == [0, 1]
