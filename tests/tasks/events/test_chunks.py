"""Tests of tasks.events.chunks: events in parts are joined, and acknowledged so that whole events always arrive."""

from __future__ import annotations

import random

import pytest

from tasks.amqp.frames import Delivery
from tasks.events.chunks import (
    LONGEST_PART,
    MOST_PARTS,
    PART_BYTES,
    SENDERS_KEPT,
    WINDOW,
    Assembler,
    properties,
    sendable,
    split,
)
from tasks.service import Subscribed
from warren.errors import CodecError

NEWEST, ALL = Subscribed("weights", latest=True), Subscribed("weights", bound=WINDOW)


def part(sender: str, number: int, index: int, count: int, body: bytes, tag: int = 1) -> Delivery:
    headers = {"from": sender, "event": number, "part": index, "parts": count}
    return Delivery("c", tag, False, properties(headers), body)


def test_a_message_of_another_client_is_an_event():
    assert Assembler(NEWEST).add(Delivery("c", 1, False, b"\x00\x00", b"whole")) == b"whole"


@pytest.mark.parametrize("properties", [b"", b"\x20\x00\x00\x00\x00\x09\x04fromS\x00\x00"])
def test_a_message_that_cannot_be_read_is_passed_over(properties):
    assembler = Assembler(NEWEST)
    assert assembler.add(Delivery("c", 1, False, properties, b"?")) is None
    assert assembler.add(part("a", 1, 0, 1, b"next")) == b"next"


@pytest.mark.parametrize("size", [0, 1, PART_BYTES, PART_BYTES + 1, MOST_PARTS * PART_BYTES + 1])
def test_an_event_of_any_length_has_no_more_parts_than_a_queue_holds(size):
    body = random.Random(size).randbytes(size)
    messages = list(split(body, "a", 1))
    assert len(messages) <= MOST_PARTS
    assembler = Assembler(NEWEST)
    found = [assembler.add(Delivery("c", 1, False, head, bytes(piece))) for head, piece in messages]
    assert found == [None] * (len(messages) - 1) + [body]


def test_interleaved_parts_of_two_senders_are_joined_in_order():
    assembler = Assembler(NEWEST)
    found = [assembler.add(part(who, 7, i, 3, f"{who}{i}".encode())) for i in range(3) for who in ("a", "b")]
    assert found == [None] * 4 + [b"a0a1a2", b"b0b1b2"]


def test_an_event_without_a_part_is_dropped_and_the_next_is_whole():
    assembler = Assembler(NEWEST)
    assert assembler.add(part("a", 1, 1, 3, b"x")) is None  # its first part was dropped
    assert assembler.add(part("a", 1, 2, 3, b"x")) is None
    assert assembler.add(part("a", 2, 0, 3, b"x")) is None
    assert assembler.add(part("a", 2, 2, 3, b"x")) is None  # its second part was dropped
    assert assembler.add(part("a", 3, 0, 2, b"x")) is None
    assert assembler.add(part("a", 4, 1, 2, b"x")) is None  # another event's, though its index is the next
    assert assembler.add(part("a", 5, 0, 2, b"1")) is None
    assert assembler.add(part("a", 5, 1, 2, b"2")) == b"12"


def test_an_event_that_is_sent_again_after_a_lost_connection_is_received_once():
    assembler = Assembler(NEWEST)
    assert assembler.add(part("a", 1, 0, 2, b"1")) is None
    assert assembler.add(part("a", 1, 0, 2, b"1")) is None  # sent again from its beginning
    assert assembler.add(part("a", 1, 1, 2, b"2")) == b"12"
    assert [assembler.add(part("a", 1, i, 2, b"x")) for i in range(2)] == [None, None]


def test_dropped_events_are_counted_and_logged_for_handlers_of_all(caplog):
    for on, logged in ((ALL, True), (NEWEST, False)):
        assembler = Assembler(on)
        caplog.clear()
        for number in (5, 6, 10, 11):
            assembler.add(part("a", number, 0, 1, b""))
        assembler.add(part("b", 1, 0, 1, b""))
        assert assembler.missed == 3
        assert ("event 'weights': 3 were dropped, 3 in all" in caplog.text) is logged


def test_senders_that_never_finish_take_bounded_memory():
    assembler = Assembler(NEWEST)
    for number in range(10 * SENDERS_KEPT):
        assembler.add(part(f"begun-{number}", 1, 0, 2, b"x"))
        assembler.add(part(f"whole-{number}", 1, 0, 1, b"x"))
    assert len(assembler._begun) <= SENDERS_KEPT
    assert len(assembler._last) <= SENDERS_KEPT


def test_an_event_in_one_message_is_acknowledged_at_once_and_a_long_one_at_its_end():
    assembler = Assembler(NEWEST)
    assembler.add(part("a", 1, 0, 1, b"", tag=1))
    assert assembler.used() == [1]
    for index in range(2):
        assembler.add(part("a", 2, index, 3, b"", tag=2 + index))
        assert assembler.used() == []
    assembler.add(part("a", 2, 2, 3, b"", tag=4))
    assert assembler.used() == [2, 3, 4]


class Broker:
    """A bounded queue that drops its head, and a consumer with a prefetch limit."""

    def __init__(self) -> None:
        self.queue: list[Delivery] = []
        self.under_way: list[Delivery] = []
        self.unacknowledged = 0

    def publish(self, message: Delivery) -> None:
        self.queue = [*self.queue, message][-WINDOW:]
        self.hand_out()

    def hand_out(self) -> None:
        while self.queue and self.unacknowledged < WINDOW:
            self.under_way.append(self.queue.pop(0))
            self.unacknowledged += 1

    def acknowledge(self, tags: list[int]) -> None:
        self.unacknowledged -= len(tags)
        self.hand_out()


@pytest.mark.parametrize("published_for_each_received", [1.1, 2, 3.7, 10])
def test_a_subscriber_that_is_always_slower_than_the_sender_still_hears_whole_events(published_for_each_received):
    broker, assembler = Broker(), Assembler(NEWEST)
    due, tag, received, longest_wait, waited = 0.0, 0, 0, 0, 0
    for _ in range(4000):
        due += published_for_each_received
        while due >= 1:
            due, tag = due - 1, tag + 1
            number, index = divmod(tag, MOST_PARTS)
            broker.publish(part("a", number, index, MOST_PARTS, b"", tag=tag))
        waited += 1
        if assembler.add(broker.under_way.pop(0)) is not None:
            received, longest_wait, waited = received + 1, max(longest_wait, waited), 0
        broker.acknowledge(assembler.used())
    assert received > 4000 / (3 * WINDOW)
    assert longest_wait <= 3 * WINDOW


def test_an_event_too_long_for_any_number_of_parts_needs_a_claim_store():
    assert sendable("weights", b"short", None) == b"short"
    with pytest.raises(CodecError, match=r"event 'weights' has .* bytes and cannot be sent"):
        sendable("weights", bytes(MOST_PARTS * LONGEST_PART + 1), None)


@pytest.mark.parametrize(
    "headers",
    [
        {"from": ["a"], "event": 1, "part": 0, "parts": 1},
        {"from": "a", "event": "1", "part": 0, "parts": 1},
        {"from": "a", "event": 1, "part": None, "parts": 1},
        {"from": "a", "event": 1, "part": 0, "parts": [1]},
        {"from": "a", "event": 1, "part": 3, "parts": 2},
        {"from": "a", "event": 1, "part": 0, "parts": 1 << 40},
        {"from": "a"},
    ],
)
def test_a_message_with_invalid_part_headers_is_lost_alone(headers):
    assembler = Assembler(Subscribed("e"))
    assert assembler.add(Delivery("e", 1, False, properties(headers), b"x")) is None
    assert assembler.refused == 1
    good = properties({"from": "a", "event": 1, "part": 0, "parts": 1})
    assert assembler.add(Delivery("e", 2, False, good, b"y")) == b"y"
