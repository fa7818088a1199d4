"""Flower's page of queues and /api/queues/length on a RabbitMQ without the management plugin."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from celery import Celery
from flower.utils import broker

from tasks.app import create_app
from tasks.topology import Topology
from workers.servers import Servers
from workers.ui.flower_queues import ask_by_amqp


@pytest.fixture
def topology(run_name: str) -> Topology:
    return Topology(run_name)


@pytest.fixture
def app(topology: Topology, servers: Servers, monkeypatch: pytest.MonkeyPatch) -> Iterator[Celery]:
    monkeypatch.setattr(broker, "RabbitMQ", broker.RabbitMQ)  # so that monkeypatch restores it
    made = create_app(topology, servers.broker_url, servers.redis_url)
    ask_by_amqp(made)
    yield made
    with made.connection_for_write() as connection:
        topology.actor_queue().bind(connection.default_channel).delete()


def test_flower_gets_the_lengths_of_queues_over_amqp(app: Celery, topology: Topology, servers: Servers) -> None:
    queue = topology.actor_queue()
    with app.connection_for_write() as connection:
        queue.bind(connection.default_channel).declare()
        with connection.Producer() as producer:
            for number in range(3):
                producer.publish(number, exchange=queue.exchange, routing_key=queue.routing_key, serializer="json")
    asked = broker.Broker(servers.broker_url, http_api=None)
    found = asyncio.run(asked.queues([f"{topology.run}-none", queue.name]))
    assert found == [{"name": queue.name, "messages": 3, "messages_ready": 3, "consumers": 0}]


def test_a_named_management_plugin_is_asked(app: Celery, servers: Servers, caplog: pytest.LogCaptureFixture) -> None:
    asked = broker.Broker(servers.broker_url, http_api="http://127.0.0.1:1/api/")
    assert asyncio.run(asked.queues(["any"])) == []
    assert "RabbitMQ management API call failed" in caplog.text
