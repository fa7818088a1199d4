"""Tests of a connection over a socket pair to a broker that is silent, low on memory, or faulty."""

from __future__ import annotations

import contextlib
import os
import struct
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from support.peer import Peer, delivery, method

from tasks.amqp import connection as connections
from tasks.amqp import frames
from tasks.amqp.connection import Link
from tasks.amqp.frames import HEARTBEAT_FRAME
from tasks.amqp.gone import LinkLost, Unanswered
from tasks.amqp.heartbeat import Heartbeats
from tasks.amqp.notices import ACK, BLOCKED, CANCEL, NACK, RETURN, UNBLOCKED

CLOSED = b"\x00\x14\x00\x28"  # channel.close


@pytest.fixture
def peer() -> Iterator[Peer]:
    peer = Peer()
    yield peer
    peer.link.discard()
    peer.far.close()


def test_deliveries_come_from_the_socket_and_other_methods_go_to_pyamqp(peer):
    peer.far.sendall(delivery(1, b"one") + HEARTBEAT_FRAME + delivery(2, b"two") + method(1, CLOSED))
    found = peer.link.drain(60.0)
    while len(found) < 2:
        found += peer.link.drain(60.0)
    peer.link.drain(0.0)
    assert [(one.tag, one.body) for one in found] == [(1, b"one"), (2, b"two")]
    assert [frame.payload for frame in peer.passed] == [CLOSED]


def test_messages_received_before_a_connection_ends_are_delivered(peer):
    peer.connection.on_inbound_frame = lambda _: (_ for _ in ()).throw(ConnectionResetError("closed"))
    peer.far.sendall(delivery(1, b"one") + method(1, CLOSED))
    assert [one.body for one in peer.link.drain(60.0)] == [b"one"]
    with pytest.raises(ConnectionResetError):
        while True:
            peer.link.drain(60.0)


def test_a_delivery_during_a_wait_of_pyamqp_is_kept(peer):
    peer.far.sendall(delivery(1, b"one") + method(1, b"\x00\x3c\x00\x0b"))
    assert peer.link._read_frame() == (frames.METHOD, 1, b"\x00\x3c\x00\x0b")
    assert [one.body for one in peer.link.drain(0.0)] == [b"one"]


def test_a_confirm_during_a_wait_of_pyamqp_is_passed_on_afterwards(peer):
    """Code that gets it may read from the connection, and would take the answer that is awaited."""
    read = list[Any]()
    peer.link._notices.settled[2] = lambda *_: read.append(peer.link.drain(0.0))
    peer.far.sendall(method(2, ACK, struct.pack(">QB", 1, 0)) + method(1, b"\x00\x32\x00\x0b"))
    assert peer.link._read_frame() == (frames.METHOD, 1, b"\x00\x32\x00\x0b") and not read
    peer.link.drain(60.0)
    assert read == [[]] and not peer.passed


def test_a_frame_without_its_end_octet_ends_the_connection(peer):
    peer.far.sendall(delivery(1, b"one")[:-1] + b"\x00")
    with pytest.raises(LinkLost, match=r"not AMQP.*0xce"):
        peer.link.drain(60.0)
    assert not peer.link.alive


def test_a_broker_that_has_been_silent_for_two_heartbeats_is_lost(monkeypatch):
    now = [time.monotonic()]
    monkeypatch.setattr(connections, "time", SimpleNamespace(monotonic=lambda: now[0]))
    peer = Peer(heartbeat=30.0)
    now[0] += 59.0
    assert peer.link.drain(0.0) == []
    now[0] += 2.0
    with pytest.raises(LinkLost, match="nothing from the broker for 61 s"):
        peer.link.drain(0.0)


def test_heartbeats_do_not_count_as_the_answer_to_a_method(peer, monkeypatch):
    monkeypatch.setattr(connections, "METHOD_TIMEOUT", 0.5)
    stop = threading.Event()
    thread = peer.trickle(HEARTBEAT_FRAME, stop)
    try:
        with pytest.raises(LinkLost, match="did not answer"), peer.link._method():
            peer.link._read_frame()
    finally:
        stop.set()
        thread.join()


def test_many_answers_to_other_methods_do_not_prolong_the_wait_for_one(peer, monkeypatch):
    monkeypatch.setattr(connections, "METHOD_TIMEOUT", 0.5)
    stop = threading.Event()
    thread = peer.trickle(method(1, b"\x00\x32\x00\x0b"), stop)
    try:
        with pytest.raises(LinkLost, match="did not answer"), peer.link._method():
            while True:  # py-amqp reads until its answer arrives
                peer.link._read_frame()
    finally:
        stop.set()
        thread.join()


def test_a_connection_to_a_silent_broker_is_dropped_soon_after_its_close(peer, monkeypatch):
    monkeypatch.setattr(connections, "METHOD_TIMEOUT", 1e6)
    monkeypatch.setattr(connections, "CLOSE_TIMEOUT", 0.2)
    ended: list[BaseException] = []

    def close_connection(_: Any) -> None:
        try:
            peer.link._read_frame()
        except Unanswered as error:
            ended.append(error)
            raise

    peer.link._kombu = SimpleNamespace(transport=SimpleNamespace(close_connection=close_connection))
    peer.link.close()
    assert len(ended) == 1 and not peer.link.alive


def test_a_link_that_cannot_open_its_channel_leaves_no_connection_behind(peer):
    def refuse() -> Any:
        raise ConnectionResetError("no channel for you")

    peer.connection.channel = refuse
    peer.far.close()
    with pytest.raises(ConnectionResetError):
        Link(peer.app)
    assert peer.near.fileno() == -1


def test_confirms_and_returns_are_passed_on_in_order(peer):
    settled, returned = list[Any](), list[str]()
    peer.link._notices.settled[1] = lambda *told: settled.append(told)
    peer.link.on_returned(returned.append)
    number = (7).to_bytes(8, "big")
    properties = frames.CORRELATION_ID.to_bytes(2, "big") + frames.short("call-1")
    back = b"\x01\x38" + frames.short("NO_ROUTE") + b"\x00\x00"
    peer.far.sendall(method(1, ACK, number + b"\x01") + method(1, NACK, number + b"\x00"))
    peer.far.sendall(method(1, RETURN, back) + b"".join(frames.content(1, properties, b"", 4096)))
    while not returned:
        peer.link.drain(60.0)
    assert settled == [(7, True, True), (7, False, False)] and returned == ["call-1"]


def test_a_consumer_that_the_broker_cancels_ends_the_connection(peer):
    peer.far.sendall(method(1, CANCEL, frames.short("actor.add") + b"\x01"))
    with pytest.raises(LinkLost, match=r"cancelled consumer actor\.add"):
        peer.link.drain(60.0)


def test_the_brokers_alarm_and_its_reason_are_known_until_it_ends(peer):
    peer.far.sendall(method(0, BLOCKED, frames.short("low on disk")))
    while not peer.link.blocked:
        peer.link.drain(60.0)
    assert peer.link.blocked == "low on disk"
    peer.far.sendall(method(0, UNBLOCKED))
    while peer.link.blocked:
        peer.link.drain(60.0)
    assert peer.passed == []


def test_during_an_alarm_acknowledgements_pass_and_replies_wait(peer):
    other = Peer()
    other.far.settimeout(60.0)
    peer.app.connection_for_write = other.app.connection_for_write
    peer.link.publish(b"reply 1")
    publisher = peer.link._publisher.link
    assert other.received(7) == b"reply 1"
    publisher.blocked = "low on memory"
    peer.link.publish(b"reply 2")
    peer.link.send(b"ack")
    assert peer.received(3) == b"ack"
    peer.link.drain(0.0)
    publisher.blocked = ""
    peer.link.drain(0.0)
    assert other.received(7) == b"reply 2"


def test_a_closed_publisher_is_replaced_and_its_link_stays_open(peer):
    first, second = Peer(), Peer()
    others = iter((first, second))
    peer.app.connection_for_write = lambda **_: next(others).app.connection_for_write()
    peer.link.publish(b"reply 1")
    assert first.received(7) == b"reply 1"
    first.far.close()
    peer.link._publisher.probed_at = 0.0
    peer.link.publish(b"reply 2")
    assert second.received(7) == b"reply 2"
    assert peer.link.alive and first.link._publisher.link is None


def test_a_connection_that_only_publishes_is_not_drained_per_message(peer, monkeypatch):
    other, looks = Peer(), list[float]()
    peer.app.connection_for_write = other.app.connection_for_write
    monkeypatch.setattr("tasks.amqp.publisher.PROBE_EVERY", 1000.0)
    peer.link.publish(b"0")
    publisher = peer.link._publisher.link
    publisher.received_at -= 60.0  # nothing is received on it
    monkeypatch.setattr(publisher, "drain", lambda timeout: looks.append(timeout))
    for _ in range(5):
        peer.link.publish(b"1")
    assert len(looks) == 1
    assert other.received(6) == b"011111"


def test_several_threads_that_publish_at_once_open_one_connection(peer):
    other, opened = Peer(), list[int]()
    real = other.app.connection_for_write

    def connect(**_: Any) -> Any:
        opened.append(1)
        time.sleep(0.01)  # for the other threads to arrive
        return real()

    peer.app.connection_for_write = connect
    threads = [threading.Thread(target=peer.link.publish, args=(b"r",)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert opened == [1] and other.received(8) == b"r" * 8


def test_confirms_after_deliveries_are_passed_on_by_the_same_drain(peer):
    settled: list[Any] = []
    peer.link._notices.settled[1] = lambda *told: settled.append(told)
    peer.far.sendall(delivery(1, b"one") + method(1, ACK, (7).to_bytes(8, "big") + b"\x00") + delivery(2, b"two"))
    assert [one.body for one in peer.link.drain(60.0)] == [b"one", b"two"]
    assert settled == [(7, False, True)]


def test_a_stuck_connection_does_not_delay_heartbeats_of_others():
    stuck, healthy = Peer(heartbeat=0.003), Peer(heartbeat=0.003)
    beats = Heartbeats()
    beats._connections.update((stuck.link, healthy.link))
    with stuck.link._stream._writing:  # as if a thread waited for the broker to read
        for peer in (stuck, healthy):
            peer.link.sent_at -= 1.0
        beating = threading.Thread(target=beats._beat, daemon=True)
        beating.start()
        assert healthy.received(8) == HEARTBEAT_FRAME
        beating.join(60.0)
        assert not beating.is_alive()


@pytest.mark.parametrize("error", [ConnectionResetError("gone"), AttributeError("an unwrapped socket")])
def test_a_heartbeat_that_fails_does_not_keep_others_from_being_sent(monkeypatch, error):
    def beat(link):
        tried.append(link)
        if len(tried) == 1:
            raise error

    tried, peers, beats = [], [Peer(heartbeat=0.003), Peer(heartbeat=0.003)], Heartbeats()
    monkeypatch.setattr(Link, "beat", beat)
    for peer in peers:
        peer.link.sent_at -= 1.0
        beats._connections.add(peer.link)
    assert beats._beat() < 0.003
    assert {*map(id, tried)} >= {id(peer.link) for peer in peers}  # the process's own heartbeats may add others


def test_no_heartbeat_is_written_to_a_full_socket(peer):
    peer.near.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            peer.near.send(b"x" * 65536)
    before = peer.link.sent_at
    peer.link.beat()
    assert peer.link.sent_at == before and peer.link.alive


def test_a_forked_child_sends_no_heartbeats_and_keeps_no_link_open():
    peer = Peer(heartbeat=30.0)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writer)
        os.read(reader, 1)  # until the parent is done
        os._exit(0 if not peer.link.alive else 1)
    os.close(reader)
    try:
        peer.link.abandon()  # the parent dies, as far as the broker can see
        peer.far.settimeout(60.0)
        assert peer.far.recv(1) == b"", "the child kept the connection open"
    finally:
        os.close(writer)
        _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
