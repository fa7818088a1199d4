"""Tests of the sender of events on a broker in memory that sometimes accepts no messages."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from support.in_memory import TOPOLOGY, app_of
from support.waiting import until

from tasks.brokers import LinkLost
from tasks.events import over_amqp
from tasks.events.over_amqp import Sender
from tasks.testing import InMemoryBroker


class Subscriber:
    """A queue that is bound to event `name`."""

    def __init__(self, broker: InMemoryBroker, name: str) -> None:
        self._link, queue = broker.connect(), TOPOLOGY.event_queue(name, "me")
        self._link.declare(queue)
        self._link.consume(queue.name, "events", no_ack=True)

    def received(self) -> int:
        return len(self._link.drain(0.0))


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> InMemoryBroker:
    broker = InMemoryBroker()
    broker.opened = 0  # type: ignore[attr-defined]
    real = broker.connect

    def connect() -> Any:
        broker.opened += 1  # type: ignore[attr-defined]
        return real()

    monkeypatch.setattr(broker, "connect", connect)
    return broker


def test_an_event_is_given_up_after_one_wait_when_the_broker_takes_none(broker, monkeypatch):
    monkeypatch.setattr(over_amqp, "SEND_TIMEOUT", 0.1)
    broker.block("low on memory")
    with pytest.raises(LinkLost, match="takes no messages: low on memory"):
        Sender(app_of(broker), TOPOLOGY).send("weights", b"1")
    assert broker.opened == 1


def test_an_event_waits_for_the_end_of_an_alarm_and_arrives_once(broker):
    subscriber, sender = Subscriber(broker, "weights"), Sender(app_of(broker), TOPOLOGY)
    sender.send("weights", b"1")
    assert subscriber.received() == 1
    broker.block("low on memory")
    firing = threading.Thread(target=sender.send, args=("weights", b"2"))
    firing.start()
    until(lambda: sender._link is not None and sender._link.blocked)
    broker.block("")
    firing.join()
    assert subscriber.received() == 1


def test_an_event_that_waits_for_other_threads_is_given_up_in_time(broker, monkeypatch):
    monkeypatch.setattr(over_amqp, "SEND_TIMEOUT", 0.05)
    sender = Sender(app_of(broker), TOPOLOGY)
    with sender._lock, pytest.raises(LinkLost, match="other events have waited"):
        sender.send("weights", b"1")


def test_an_event_is_sent_again_when_the_connection_breaks(broker, monkeypatch):
    subscriber, sender = Subscriber(broker, "weights"), Sender(app_of(broker), TOPOLOGY)
    broker.cut()
    subscriber = Subscriber(broker, "weights")
    sender.send("weights", b"1")
    assert subscriber.received() == 1
    sender._link.close()
    sender.send("weights", b"2")
    assert subscriber.received() == 1
