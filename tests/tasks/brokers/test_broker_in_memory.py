"""Tests that the broker in memory behaves like RabbitMQ as far as clients and workers rely on it."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from support.contended import Contended

from tasks.amqp import frames
from tasks.amqp.messages import DIRECT_REPLY, Envelope, Ids, Replies
from tasks.brokers import LinkLost
from tasks.testing import InMemoryBroker
from tasks.testing.connection import InMemoryConnection
from tasks.topology import Topology
from warren.errors import ConfigurationError

TOPOLOGY = Topology("memory")


@pytest.fixture
def broker() -> InMemoryBroker:
    return InMemoryBroker()


def connect(broker: InMemoryBroker) -> InMemoryConnection:
    connection = broker.connect()
    assert isinstance(connection, InMemoryConnection)
    return connection


def call(connection: Any, name: str, body: bytes = b"body", channel: int = 1, reply_to: str = "") -> bytes:
    envelope = Envelope(channel, connection.frame_max, TOPOLOGY.service.name, name, reply_to=reply_to)
    return envelope.write(Ids().new(), b"", body)


def test_a_message_goes_to_its_bound_queue_and_leaves_when_acknowledged(broker):
    queue = TOPOLOGY.service_queue("actor.add")
    worker, caller = connect(broker), connect(broker)
    worker.declare(queue)
    worker.consume(queue.name, "actor.add", prefetch=1)
    caller.send(call(caller, "actor.add", b"first") + call(caller, "actor.add", b"second"))
    (first,) = worker.drain()
    assert (first.consumer, first.body, first.redelivered) == ("actor.add", b"first", False)
    assert caller.consumers(queue.name) == 1 and len(broker.waiting(queue.name)) == 1
    worker.send(frames.ack(worker.channel_id, first.tag))
    (second,) = worker.drain()
    assert second.body == b"second"


def test_unacknowledged_messages_of_a_lost_connection_are_redelivered_and_marked(broker):
    queue = TOPOLOGY.service_queue("actor.add")
    first, caller = connect(broker), connect(broker)
    first.declare(queue)
    first.consume(queue.name, "actor.add")
    caller.send(call(caller, "actor.add"))
    assert len(first.drain()) == 1
    first.discard()
    with pytest.raises(LinkLost):
        first.drain()
    second = connect(broker)
    second.consume(queue.name, "actor.add")
    (again,) = second.drain()
    assert again.redelivered


def test_a_connection_that_is_cut_while_it_waits_for_the_broker_takes_no_message(broker):
    queue = TOPOLOGY.service_queue("actor.add")
    connect(broker).declare(queue)
    broker.lock = lock = Contended(broker.lock)
    worker = connect(broker)
    with ThreadPoolExecutor(1) as threads:
        with lock:
            consuming = threads.submit(worker.consume, queue.name, "actor.add")
            assert lock.came.wait(60.0)
            broker.cut()
        with pytest.raises(LinkLost):
            consuming.result(60.0)
    caller = connect(broker)
    caller.send(call(caller, "actor.add"))
    assert len(broker.waiting(queue.name)) == 1


def test_a_direct_reply_reaches_its_caller(broker):
    queue = TOPOLOGY.service_queue("actor.add")
    worker, caller = connect(broker), connect(broker)
    worker.declare(queue)
    worker.consume(queue.name, "actor.add")
    caller.consume(DIRECT_REPLY, "replies", no_ack=True)
    caller.send(call(caller, "actor.add", reply_to=DIRECT_REPLY))
    (asked,) = worker.drain()
    properties = frames.read_properties(asked.properties)
    replies = Replies(worker.channel_id, worker.frame_max)
    worker.publish(b"".join(replies.write(properties.reply_to, properties.correlation_id, b"result")))
    (answer,) = caller.drain()
    assert (answer.consumer, answer.body) == ("replies", b"result")
    assert frames.read_properties(answer.properties).correlation_id == properties.correlation_id


def test_messages_are_confirmed_or_returned_if_no_queue_is_bound(broker):
    queue = TOPOLOGY.service_queue("actor.push", response=False, bound=1)
    caller, settled, returned = connect(broker), list[tuple[int, bool, bool]](), list[str]()
    caller.declare(queue)
    channel = caller.confirm(lambda *told: settled.append(told))
    caller.on_returned(returned.append)
    for name in ("actor.push", "actor.push", "actor.unknown"):
        caller.send(call(caller, name, channel=channel))
    caller.drain()
    assert settled == [(1, False, True), (2, False, False), (3, False, True)]
    assert len(returned) == 1


def test_messages_rejected_for_good_become_dead_letters(broker):
    queue, dead = TOPOLOGY.service_queue("actor.push", response=False), TOPOLOGY.dead_queue("actor")
    worker = connect(broker)
    worker.declare(queue)
    worker.declare(dead)
    worker.consume(queue.name, "actor.push")
    worker.send(call(worker, "actor.push", b"bad"))
    (bad,) = worker.drain()
    worker.send(frames.reject(worker.channel_id, bad.tag, requeue=False))
    assert [message.body for message in broker.waiting(dead.name)] == [b"bad"]


def test_an_event_reaches_every_queue_and_a_bounded_one_keeps_the_newest(broker):
    sender, one, two = (connect(broker) for _ in range(3))
    queues = TOPOLOGY.event_queue("weights", "a", length=2), TOPOLOGY.event_queue("weights", "b", length=2)
    one.declare(queues[0])
    two.declare(queues[1])
    for number in range(3):
        method = frames.publish_method(1, TOPOLOGY.event("weights").name, "")
        sender.send_parts([method, *frames.content(1, b"\x00\x00", bytes([number]), sender.frame_max)])
    assert [[message.body for message in broker.waiting(queue.name)] for queue in queues] == [[b"\x01", b"\x02"]] * 2
    one.close()
    assert queues[0].name not in broker.host.queues


def test_a_broker_low_on_memory_blocks_messages_but_not_acknowledgements(broker):
    queue = TOPOLOGY.service_queue("actor.add")
    worker = connect(broker)
    worker.declare(queue)
    worker.consume(queue.name, "actor.add", prefetch=1)
    worker.send(call(worker, "actor.add", b"1") + call(worker, "actor.add", b"2"))
    (first,) = worker.drain()
    broker.block("low on memory")
    worker.publish(call(worker, "actor.add", b"3"))
    worker.send(frames.ack(worker.channel_id, first.tag))
    assert [one.body for one in worker.drain()] == [b"2"] and worker.blocked == "low on memory"
    assert broker.waiting(queue.name) == []
    broker.block("")
    worker.drain(0.0)
    assert [one.body for one in broker.waiting(queue.name)] == [b"3"] and worker.blocked == ""


def test_a_queue_that_exists_with_other_arguments_is_an_error(broker):
    connection = connect(broker)
    connection.declare(TOPOLOGY.service_queue("actor.push", response=False, bound=1))
    with pytest.raises(ConfigurationError, match="other arguments"):
        connection.declare(TOPOLOGY.service_queue("actor.push", response=False, bound=2))


def test_a_broker_that_is_down_takes_no_connection(broker):
    connection = connect(broker)
    broker.stop()
    with pytest.raises(LinkLost):
        connection.send(call(connection, "actor.add"))
    with pytest.raises(LinkLost):
        broker.connect()


def test_a_drain_ends_as_soon_as_its_waker_is_readable(broker):
    queue = TOPOLOGY.service_queue("actor.add")
    worker, caller, (reader, writer) = connect(broker), connect(broker), socket.socketpair()
    worker.declare(queue)
    worker.consume(queue.name, "actor.add")
    worker.wake_by(reader.fileno())
    threading.Timer(0.05, writer.send, (b"x",)).start()
    assert worker.drain(3600.0) == []  # longer than this test may take
    caller.send(call(caller, "actor.add"))
    assert len(worker.drain(60.0)) == 1
    reader.close()
    writer.close()
