"""Test of quorum queues on three RabbitMQ nodes: one is killed, no message is lost, and clients use the others."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.brokers import lacking
from support.waiting import until

from benchmarks.apparatus.rabbitmq_cluster import Cluster
from tasks.amqp.connection import Link
from tasks.app import create_app
from tasks.client.bounded_sender import BoundedSender
from tasks.topology import Topology
from workers.doctor.broker_facts import over_amqp
from workers.servers import Machine, check_broker

pytestmark = [pytest.mark.servers, pytest.mark.slow]
MESSAGES = 20


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    binaries = Machine().rabbitmq()
    if binaries is None:
        lacking("no rabbitmq-server")
    cluster = Cluster(binaries, tmp_path)
    yield cluster
    cluster.stop()


def test_a_confirmed_message_outlives_the_node_that_took_it(
    cluster: Cluster, redis_url: str, run_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert check_broker(cluster.url).count("RabbitMQ") == 3
    monkeypatch.setenv("WARREN_QUEUES", "quorum")
    topology = Topology(run_name)
    app = create_app(topology, cluster.url, redis_url)
    with app.connection_for_write() as connection, connection.channel() as channel:
        for queue in topology.declared():
            queue(channel).declare()
    sender = BoundedSender(app, topology.learner_queue(), lambda: 3 * MESSAGES, threading.Event())
    for number in range(MESSAGES):
        assert sender.send("learner.learn", (number,))  # True when a majority of the nodes has it

    cluster.kill(0)  # the queues were declared on this node, and all clients are connected to it
    for number in range(MESSAGES, 2 * MESSAGES):
        assert sender.send("learner.learn", (number,))
    told = check_broker(cluster.url)  # a starting role does this
    assert told.count("RabbitMQ 3") + told.count("RabbitMQ 4") == 2 and "is down" in told
    assert over_amqp(cluster.url, topology).confirms
    found: list[int] = []

    def take() -> bool:
        with app.connection_for_read() as connection:
            connection.ensure_connection(max_retries=3, interval_start=0)
            queue = topology.learner_queue()(connection.default_channel)
            while (message := queue.get()) is not None:
                found.append(message.payload[0][0])
                message.ack()
        return len(found) >= 2 * MESSAGES

    until(take, "all messages have come")
    assert sorted(set(found)) == list(range(2 * MESSAGES))
    link = Link(app)  # clients and workers of services connect this way
    link.declare(topology.service_queue("policy.act"))
    assert link.consumers(topology.service_queue("policy.act").name) == 0
    link.close()
