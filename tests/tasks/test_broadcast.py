"""tasks.broadcast and tasks.listening: long events in parts, and the newest alone for who was slow."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from tasks import codec
from tasks.app import create_app
from tasks.broadcast import PART_BYTES, SETS_KEPT, Assembler, Broadcaster, _properties
from tasks.frames import Delivery, table
from tasks.housekeeping import remove_run
from tasks.listening import Listener
from tasks.topology import Topology


def part(mark: str, index: int, count: int, body: bytes) -> Delivery:
    return Delivery("c", 1, False, _properties(table({"set": mark, "part": index, "parts": count})), body)


def test_an_event_in_one_message_is_its_body():
    assert Assembler().add(Delivery("c", 1, False, _properties(b""), b"whole")) == b"whole"


def test_parts_are_joined_in_order_though_those_of_two_senders_mix():
    assembler = Assembler()
    found = [
        assembler.add(part(mark, index, 3, f"{mark}{index}".encode())) for index in range(3) for mark in ("a", "b")
    ]
    assert found == [None] * 4 + [b"a0a1a2", b"b0b1b2"]


def test_a_set_that_lacks_a_part_is_dropped_and_the_next_one_is_whole():
    assembler = Assembler()
    assert assembler.add(part("a", 1, 3, b"x")) is None  # its first part was dropped
    assert assembler.add(part("a", 2, 3, b"x")) is None
    assert assembler.add(part("b", 0, 2, b"1")) is None
    assert assembler.add(part("b", 1, 2, b"2")) == b"12"


def test_sets_that_never_become_whole_take_no_memory_for_ever():
    assembler = Assembler()
    for number in range(100):
        assembler.add(part(str(number), 0, 2, b"x"))
    assert len(assembler._sets) <= SETS_KEPT


@pytest.fixture
def run(broker_url, redis_url, run_name):
    topology = Topology(run_name)
    app = create_app(topology, broker_url, redis_url)
    yield app, topology
    remove_run(app, __import__("redis").Redis.from_url(redis_url), topology)


@pytest.mark.parametrize("size", [0, 1000, PART_BYTES, 3 * PART_BYTES + 17])
def test_an_event_of_any_length_arrives_as_it_was_fired(run, size):
    app, topology = run
    found: list[np.ndarray] = []
    arrived = threading.Event()

    def hear(payload) -> None:
        found.append(np.array(payload["data"]))
        arrived.set()

    listener = Listener(app, topology, {"weights": hear}, "me").start()
    data = np.arange(size, dtype=np.uint8)
    events = Broadcaster(app, topology)
    events.fire("weights", {"data": data})
    assert arrived.wait(20)
    assert np.array_equal(found[0], data)
    events.close()
    listener.stop()


def test_a_slow_handler_continues_with_the_newest_long_event(run):
    app, topology = run
    heard: list[int] = []
    begun, go_on, last = threading.Event(), threading.Event(), threading.Event()

    def hear(payload) -> None:
        heard.append(payload["version"])
        begun.set()
        go_on.wait(20)
        if payload["version"] == 40:
            last.set()

    listener = Listener(app, topology, {"weights": hear}, "me").start()
    events = Broadcaster(app, topology)
    events.fire("weights", {"version": 0})
    assert begun.wait(20)
    for version in range(1, 41):
        events.fire("weights", {"version": version, "data": bytes(3 * PART_BYTES)})
    go_on.set()
    assert last.wait(30)
    assert heard[0] == 0 and heard[-1] == 40 and heard == sorted(heard) and len(heard) < 40
    events.close()
    listener.stop()


def test_the_wire_format_of_an_event_is_that_of_kombus_own_events(run):
    app, topology = run
    with app.connection_for_read() as connection, connection.channel() as channel:
        queue = topology.event_queue("small", "kombu")(channel)
        queue.declare()
        Broadcaster(app, topology).fire("small", {"a": 1})
        message = None
        while message is None:
            message = queue.get(accept=[codec.NAME])
        assert message.decode() == {"a": 1}
