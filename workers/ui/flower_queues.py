"""Lengths of queues for Flower, by AMQP: Flower would ask RabbitMQ's management plugin, which a private one lacks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from amqp.exceptions import NotFound
from celery import Celery
from flower.utils import broker


def ask_by_amqp(app: Celery) -> None:
    """Have Flower ask over AMQP, by `app`'s broker, from now on, unless its own setting `broker_api` names a plugin."""

    class Queues(broker.RabbitMQ):  # type: ignore[misc]
        def __init__(self, broker_url: str, http_api: str | None = None, **named: Any) -> None:
            super().__init__(broker_url, http_api, **named)
            self._by_plugin = http_api is not None

        async def queues(self, names: Iterable[str]) -> list[dict[str, Any]]:
            if self._by_plugin:
                found: list[dict[str, Any]] = await super().queues(names)
                return found
            return await asyncio.to_thread(lengths, app, names)

    broker.RabbitMQ = Queues  # the class that Flower's broker.Broker makes for amqp://; no setting names another


def lengths(app: Celery, names: Iterable[str]) -> list[dict[str, Any]]:
    """Return name, ready messages and consumers of each of these queues that exists, as the plugin names them."""
    found = []
    with app.connection_for_read() as connection:
        for name in names:
            try:
                told = connection.default_channel.queue_declare(name, passive=True)
            except NotFound:  # this closes the channel; the next one is made anew
                continue
            found.append({"name": name, "messages_ready": told.message_count, "consumers": told.consumer_count})
    for one in found:
        one["messages"] = one["messages_ready"]  # AMQP does not count messages that a worker holds
    return found
