"""Tests of firing, receiving and retaining events on the broker in memory."""

from __future__ import annotations

import subprocess
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from support.waiting import PATIENCE, until

from tasks import codec
from tasks.events import EventDispatcher, Subscription, dispatcher, event_handler, over_amqp
from tasks.events.retained import FIRED, SUBSCRIBED, Retained
from tasks.testing import InMemoryBroker
from tasks.topology import Topology
from warren.errors import ConfigurationError, WireError

TOPOLOGY = Topology("memory")
ENDS_IN_A_HANDLER = """
import threading, time
from types import SimpleNamespace
from tasks.codec import encode
from tasks.events import Subscription
from tasks.events.over_amqp import Sender
from tasks.testing import InMemoryBroker
from tasks.topology import Topology

app, topology, begun = SimpleNamespace(warren_broker=InMemoryBroker()), Topology("memory"), threading.Event()

def handle(payload):
    begun.set()
    time.sleep(0.3)  # as a computation would
    print("handled", flush=True)

Subscription(app, topology, {"counted": handle}, "me").start()
Sender(app, topology).send("counted", encode(1))
begun.wait()
"""


class Pipeline:
    """The part of redis-py's pipeline that Retained uses, on a store of dictionaries."""

    def __init__(self, store: Store) -> None:
        self._store, self._found = store, list[Any]()

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def hset(self, key: str, field: str = "", value: bytes = b"", mapping: Any = None) -> None:
        self._store.table.update(mapping or {field: value})

    def hsetnx(self, key: str, field: str, value: bytes) -> None:
        self._store.table.setdefault(field, value)

    def hget(self, key: str, field: str) -> None:
        self._found.append(self._store.table.get(field))

    def set(self, key: str, value: bytes, ex: int) -> None:
        self._store.values[key] = value

    def expire(self, key: str, seconds: int) -> None:
        self._store.renewed += 1

    def execute(self) -> list[Any]:
        return self._found


class Store:
    """A Redis of dictionaries."""

    def __init__(self) -> None:
        self.table: dict[str, bytes] = {}
        self.values: dict[str, bytes] = {}
        self.renewed = 0

    def pipeline(self, transaction: bool) -> Pipeline:
        return Pipeline(self)

    def get(self, key: str) -> bytes | None:
        return self.values.get(key)


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def make(store: Store, monkeypatch: pytest.MonkeyPatch) -> Any:
    app: Any = SimpleNamespace(conf=SimpleNamespace(result_backend="redis://127.0.0.1:1/0"))

    def made(*_: Any) -> Retained:
        found = Retained(app, TOPOLOGY)
        found._redis = store  # type: ignore[assignment]
        return found

    monkeypatch.setattr(dispatcher, "Retained", made)
    return made


@pytest.fixture
def app() -> Any:
    policy = {"max_retries": 2, "interval_start": 0.01, "interval_step": 0.01, "interval_max": 0.01}
    return SimpleNamespace(
        warren_broker=InMemoryBroker(),
        conf=SimpleNamespace(result_backend="redis://127.0.0.1:1/0", task_publish_retry_policy=policy),
    )


def test_events_are_received_in_order_and_a_failing_handler_receives_the_next(app, make):
    received: list[Any] = []

    def receive(payload: Any) -> None:
        received.append(payload)
        if payload == {"steps": "many"}:
            raise TypeError("no number")

    handlers = {"counted": event_handler("counted", bound=100)(receive)}
    subscription = Subscription(app, TOPOLOGY, handlers, "me").start()
    events = EventDispatcher(app, TOPOLOGY)
    for payload in (1, {"steps": "many"}, 3):
        events.fire("counted", payload)
    until(lambda: received == [1, {"steps": "many"}, 3])
    app.warren_broker.cut()
    until(lambda: len(app.warren_broker.connections) >= 1)
    events.fire("counted", 4)
    subscription.stop()
    events.close()


def test_invalid_bodies_are_logged_once_and_then_counted(app, make, caplog):
    received: list[Any] = []
    handlers = {"counted": event_handler("counted", bound=1000)(lambda payload: received.append(payload))}
    subscription = Subscription(app, TOPOLOGY, handlers, "me").start()
    sender, events = over_amqp.Sender(app, TOPOLOGY), EventDispatcher(app, TOPOLOGY)
    for _ in range(50):
        sender.send("counted", b"\xc1 no event")
    events.fire("counted", "the last")
    until(lambda: received == ["the last"])
    told = [record.getMessage() for record in caplog.records if "counted" in record.getMessage()]
    # A slow machine adds a line per ten seconds.
    assert told[0].startswith("event 'counted' cannot be read and is dropped: ") and len(told) < 10
    assert "so far" not in told[0] and subscription._unreadable["counted"].count == 50
    subscription.stop()
    sender.close()
    events.close()


def test_the_end_of_a_process_waits_for_a_handler():
    """Unwinding a handler within torch's C++ at the end would abort the process."""
    command = [sys.executable, "-c", ENDS_IN_A_HANDLER]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert (ended.stdout, ended.returncode) == ("handled\n", 0), ended.stderr


def test_a_handler_may_stop_its_own_subscription(app):
    seen: list[str] = []

    def handle(payload: str) -> None:
        subscription.stop()
        seen.append(payload)

    subscription = Subscription(app, TOPOLOGY, {"counted": handle}, "me").start()
    over_amqp.Sender(app, TOPOLOGY).send("counted", codec.encode("last"))
    subscription._thread.join(PATIENCE)
    assert seen == ["last"] and not subscription._thread.is_alive()


def test_a_subscription_that_cannot_begin_is_an_error_and_leaves_no_thread(app):
    app.warren_broker.stop()
    subscription = Subscription(app, TOPOLOGY, {"counted": print}, "me")
    with pytest.raises(WireError, match="could not subscribe to counted"):
        subscription.start(timeout=0.1)
    assert "events-me" not in [thread.name for thread in threading.enumerate()]


def test_an_event_fired_right_after_the_first_subscription_is_retained(make, store):
    firing, first, second = make(), make(), make()
    assert not firing.keep("weights", b"0")
    assert store.table == {"weights": FIRED}
    first.subscribe(["weights"])
    assert firing.keep("weights", b"1")
    assert second.newest("weights") == b"1"


def test_an_event_is_retained_for_a_subscription_made_while_it_is_sent(app, make, store, monkeypatch):
    events = EventDispatcher(app, TOPOLOGY)
    send = events._sender.send

    def send_while_somebody_subscribes(name: str, body: bytes) -> None:
        send(name, body)
        make().subscribe([name])

    monkeypatch.setattr(events._sender, "send", send_while_somebody_subscribes)
    events.fire("weights", 7)
    assert make().newest("weights") is not None
    events.close()


def test_firing_renews_the_entry_of_an_event_with_subscribing_services(make, store):
    firing = make()
    firing.subscribe(["weights"])
    before = store.renewed
    firing.keep("weights", b"1")
    store.table.clear()  # Redis lost all
    firing.keep("weights", b"2")
    assert store.renewed >= before + 2 and store.table == {"weights": SUBSCRIBED}


def test_an_async_handler_without_a_loop_is_refused():
    async def hear(payload: Any) -> None: ...

    with pytest.raises(ConfigurationError, match="'said' is `async def`"):
        Subscription(SimpleNamespace(), TOPOLOGY, {"said": hear}, "me")
