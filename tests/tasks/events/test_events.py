"""Tests of events: all current subscribers get them, a slow one the newest; lost connections are replaced."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import redis
from support.obedient import close_connections
from support.waiting import PATIENCE, until
from support.wire import Wire

from tasks import codec, context
from tasks.app import create_app
from tasks.events import EventDispatcher, Subscription, event_handler
from tasks.events.chunks import PART_BYTES
from tasks.topology import EVENT_LENGTH, Topology
from warren.errors import BrokerError
from workers.servers import Servers

# A subscriber as a process, which can be paused; it records each event's number in a Redis list.
LISTENER = """
import sys, time
import redis
from tasks.amqp.connection import Link
from tasks.app import create_app
from tasks.events import Subscription
from tasks.topology import Topology
Link.__init__.__defaults__ = (0.0,)  # no heartbeats: on a busy machine it may be stopped for longer than they wait
run, broker_url, redis_url = sys.argv[1:]
topology, client = Topology(run), redis.Redis.from_url(redis_url)
def note(payload): client.rpush("received:" + run, payload["number"])
Subscription(create_app(topology, broker_url, redis_url), topology, {"weights": note}, "listener").start(600.0)
client.rpush("received:" + run, -1)
time.sleep(600)
"""


@pytest.fixture(params=["rabbitmq", "embedded"])
def server(request: pytest.FixtureRequest) -> Servers:
    found: Servers = request.getfixturevalue("servers" if request.param == "rabbitmq" else "embedded")
    return found


class Run:
    """An app whose subscriptions end with the test."""

    def __init__(self, servers: Servers, run: str) -> None:
        self.servers, self.topology = servers, Topology(run)
        self.app = create_app(self.topology, servers.broker_url, servers.redis_url)
        self.dispatcher = EventDispatcher(self.app, self.topology)
        self._subscriptions: list[Subscription] = []

    def subscribe(self, handlers: Any, subscriber: str = "me", app: Any = None, **options: Any) -> Subscription:
        subscription = Subscription(app or self.app, self.topology, handlers, subscriber, **options)
        self._subscriptions.append(subscription)
        return subscription.start(PATIENCE)

    def close(self) -> None:
        for subscription in self._subscriptions:
            subscription.stop()
        self.dispatcher.close()


@pytest.fixture
def run(server: Servers, run_name: str) -> Iterator[Run]:
    run = Run(server, run_name)
    yield run
    run.close()


@pytest.fixture
def on_rabbitmq(servers: Servers, run_name: str) -> Iterator[Run]:
    run = Run(servers, run_name)
    yield run
    run.close()


def test_an_event_reaches_every_subscriber_of_its_name_and_no_other(run: Run) -> None:
    received: dict[str, list[Any]] = {"a": [], "b": [], "other": []}
    run.subscribe({"weights": received["a"].append}, "a")
    run.subscribe({"weights": received["b"].append}, "b")
    run.subscribe({"status": received["other"].append}, "c")
    run.dispatcher.fire("weights", {"version": 3, "data": b"\x00\xff"})
    until(lambda: received["a"] and received["b"], "an event at both")
    assert received == {
        "a": [{"version": 3, "data": b"\x00\xff"}],
        "b": [{"version": 3, "data": b"\x00\xff"}],
        "other": [],
    }


def test_an_event_without_subscribers_is_gone(run: Run) -> None:
    received: list[Any] = []
    run.dispatcher.fire("weights", "before")
    run.subscribe({"weights": received.append})
    run.dispatcher.fire("weights", "after")
    until(lambda: received, "the event")
    assert received == ["after"]


def test_whatever_is_fired_after_the_start_arrives(run: Run) -> None:
    for turn in range(10):
        received: list[int] = []
        subscription = run.subscribe({"weights": received.append}, f"subscriber-{turn}")
        run.dispatcher.fire("weights", turn)
        until(lambda received=received: received, f"event {turn}")
        subscription.stop()


@pytest.mark.parametrize("size", [200_000, 3 * PART_BYTES], ids=["in_one_message", "in_parts"])
def test_a_paused_subscriber_has_a_bounded_queue_and_goes_on_with_the_newest(
    server: Servers, run: Run, request: pytest.FixtureRequest, size: int
) -> None:
    client = redis.Redis.from_url(server.redis_url)
    key = f"received:{run.topology.run}"

    def received() -> list[int]:
        return [int(number) for number in client.lrange(key, 0, -1)]

    def waiting() -> list[tuple[int, int]]:
        """Return (ready, all) messages of the listener's queue."""
        rabbitmqctl: Callable[..., list[str]] = request.getfixturevalue("rabbitmqctl")
        rows = [line.split("\t") for line in rabbitmqctl("list_queues", "name", "messages_ready", "messages")]
        queue = f"{run.topology.prefix}.event.weights.listener"
        return [(int(ready), int(total)) for name, ready, total in rows if name.startswith(queue)]

    listener = subprocess.Popen([sys.executable, "-c", LISTENER, run.topology.run, server.broker_url, server.redis_url])
    try:
        until(received, "the subscription")
        listener.send_signal(signal.SIGSTOP)
        for number in range(60):
            run.dispatcher.fire("weights", {"number": number, "data": bytes(size)})
            if server.kind == "rabbitmq" and number in (39, 59):
                # The queue holds at least the newest event whole; as many messages are unacknowledged.
                until(lambda: waiting() == [(EVENT_LENGTH, 2 * EVENT_LENGTH)], "a queue of no more than that")
        listener.send_signal(signal.SIGCONT)
        until(lambda: received()[-1] == 59, "the newest event")
        assert len(received()) <= 4, "the subscriber received a backlog"
    finally:
        listener.kill()
        listener.wait()


class Busy:
    """A handler that stays busy with its first event until all others have been fired."""

    def __init__(self) -> None:
        self.received: list[int] = []
        self._begun, self._go_on = threading.Event(), threading.Event()

    def __call__(self, number: int) -> None:
        self.received.append(number)
        self._begun.set()
        assert self._go_on.wait(PATIENCE)

    def is_fired_at(self, run: Run, name: str, last: int) -> None:
        """Fire 0, then 1 to `last` while it is busy with 0; return once it has received `last`."""
        run.dispatcher.fire(name, 0)
        assert self._begun.wait(PATIENCE)
        for number in range(1, last + 1):
            run.dispatcher.fire(name, number)
        self._go_on.set()
        until(lambda: self.received[-1] == last, "the newest event")


def test_a_slow_handler_continues_with_the_newest(run: Run) -> None:
    slow = Busy()
    run.subscribe({"weights": slow})
    slow.is_fired_at(run, "weights", 20)
    assert len(slow.received) <= 4


@pytest.mark.parametrize("size", [0, 1000, PART_BYTES, 3 * PART_BYTES + 17])
def test_an_event_of_any_length_arrives_as_it_was_fired(run: Run, size: int) -> None:
    received: list[np.ndarray[Any, Any]] = []
    run.subscribe({"weights": lambda payload: received.append(np.array(payload["data"]))})
    data = np.random.default_rng(0).integers(0, 256, size, dtype=np.uint8)
    run.dispatcher.fire("weights", {"data": data})
    until(lambda: received, "the event")
    assert np.array_equal(received[0], data)


def test_a_handler_of_all_events_hears_all_that_were_fired_while_it_was_busy(run: Run) -> None:
    count = event_handler("counted", latest=False, bound=500)(Busy())
    run.subscribe({"counted": count})
    count.is_fired_at(run, "counted", 300)
    assert count.received == list(range(301))


def test_a_handler_of_all_events_loses_the_oldest_beyond_its_bound_and_logs_it(
    on_rabbitmq: Run, caplog: pytest.LogCaptureFixture
) -> None:
    count = event_handler("counted", bound=20)(Busy())
    on_rabbitmq.subscribe({"counted": count})
    count.is_fired_at(on_rabbitmq, "counted", 100)
    received = count.received
    assert received == sorted(received)
    assert received[-20:] == list(range(81, 101)), "the newest events within its bound are missing"
    assert 20 < len(received) <= 1 + EVENT_LENGTH + 20, "it received more than its bound, its queue and the first event"
    assert f"event 'counted': {101 - len(received)} were dropped" in caplog.text


def test_without_arguments_both_ends_use_the_run_of_the_process(run: Run, monkeypatch: Any) -> None:
    monkeypatch.setattr(context, "_run", context.Run(run.app, run.topology))
    received: list[str] = []
    subscription = Subscription(None, None, {"weights": received.append}, "me").start(PATIENCE)
    dispatcher = EventDispatcher()
    dispatcher.fire("weights", "here")
    until(lambda: received == ["here"], "the event")
    subscription.stop()
    dispatcher.close()


def test_kombu_can_read_events_on_rabbitmq(on_rabbitmq: Run) -> None:
    with on_rabbitmq.app.connection_for_read() as connection, connection.channel() as channel:
        queue = on_rabbitmq.topology.event_queue("small", "kombu")(channel)
        queue.declare()
        on_rabbitmq.dispatcher.fire("small", {"a": 1})
        message = queue.get(accept=[codec.NAME])
    assert message is not None, "the message was not there when `fire` returned"
    assert message.decode() == {"a": 1}


def test_a_dispatcher_goes_on_after_its_connection_or_exchange_was_deleted(
    on_rabbitmq: Run,
) -> None:
    received: list[str] = []
    connected: list[int] = []
    on_rabbitmq.subscribe({"weights": received.append}, on_connected=lambda: connected.append(1))
    on_rabbitmq.dispatcher.fire("weights", "first")
    close_connections(on_rabbitmq.servers)
    until(lambda: len(connected) == 2, "a new subscription")
    on_rabbitmq.dispatcher.fire("weights", "second")
    until(lambda: received[-1:] == ["second"], "the event")
    with on_rabbitmq.app.connection_for_write() as connection:
        on_rabbitmq.topology.event("weights")(connection.default_channel).delete()
    on_rabbitmq.dispatcher.fire("weights", "to nobody")


def test_events_fired_without_a_pause_are_still_delivered(run: Run) -> None:
    received: list[int] = []
    run.subscribe({"weights": received.append})
    number, deadline = 0, time.monotonic() + PATIENCE
    while not received and time.monotonic() < deadline:
        run.dispatcher.fire("weights", number)
        number += 1
    assert received, f"{number} events were fired and none was delivered"
    assert received[0] < number


def test_a_subscriber_with_a_lost_connection_resubscribes_and_catches_up(run: Run) -> None:
    received: list[Any] = []
    connected: list[float] = []
    run.subscribe({"weights": received.append}, on_connected=lambda: connected.append(time.monotonic()))
    assert len(connected) == 1
    close_connections(run.servers)
    until(lambda: len(connected) == 2, "a new subscription")
    run.dispatcher.fire("weights", "after the loss")
    until(lambda: received == ["after the loss"], "the event")


def test_catching_up_is_tried_again_while_it_fails(run: Run) -> None:
    received: list[Any] = []
    tries: list[int] = []

    def on_connected() -> None:
        tries.append(len(tries))
        if len(tries) < 3:
            raise redis.ConnectionError("away as well")

    run.subscribe({"weights": received.append}, on_connected=on_connected)
    until(lambda: len(tries) == 3, "the third try")
    run.dispatcher.fire("weights", "still there")
    until(lambda: received == ["still there"], "the event")
    assert len(tries) == 3


def test_a_handler_that_fails_does_not_end_the_subscription(run: Run) -> None:
    received: list[Any] = []

    def handler(payload: Any) -> None:
        received.append(payload)
        raise ValueError("a bad event")

    run.subscribe({"weights": handler})
    for payload in ("first", "second"):
        run.dispatcher.fire("weights", payload)
        until(lambda payload=payload: payload in received, payload)


def test_a_subscriber_resubscribes_while_the_broker_holds_its_old_connection(on_rabbitmq: Run) -> None:
    wire = Wire(on_rabbitmq.servers.broker_url)
    try:
        app = create_app(on_rabbitmq.topology, wire.url, on_rabbitmq.servers.redis_url)
        received: list[Any] = []
        connected: list[int] = []
        on_rabbitmq.subscribe({"weights": received.append}, app=app, on_connected=lambda: connected.append(1))
        wire.lose()
        until(lambda: len(connected) == 2, "a new subscription")
        on_rabbitmq.dispatcher.fire("weights", "after the loss")
        until(lambda: received == ["after the loss"], "the event")
    finally:
        wire.close()


def test_a_subscription_leaves_nothing_behind(on_rabbitmq: Run, rabbitmqctl: Callable[..., list[str]]) -> None:
    subscription = on_rabbitmq.subscribe({"weights": print, "status": print}, "me")
    prefix = f"{on_rabbitmq.topology.prefix}.event."

    def queues() -> list[str]:
        return [name for name in rabbitmqctl("list_queues", "name") if name.startswith(prefix)]

    until(lambda: len(queues()) == 2, "both queues")
    subscription.stop()
    until(lambda: not queues(), "the end of both queues")


@pytest.mark.timeout(240)  # its attempts end
@pytest.mark.parametrize("url", ["amqp://guest:guest@127.0.0.1:1//", "redis://127.0.0.1:1/0"])
def test_an_event_that_finds_no_broker_is_an_error(url: str, run_name: str) -> None:
    topology = Topology(run_name)
    dispatcher = EventDispatcher(create_app(topology, url, "redis://127.0.0.1:1/0"), topology)
    with pytest.raises(BrokerError, match=r"event 'weights' was not sent, since the broker is away"):
        dispatcher.fire("weights", {})
