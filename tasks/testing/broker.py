"""The broker in memory: its connections, and what a test can do to all of them at once."""

from __future__ import annotations

import threading

from tasks.amqp.connection import LinkLost
from tasks.brokers.base import Broker, Connection
from tasks.testing.connection import InMemoryConnection
from tasks.testing.virtual_host import Message, VirtualHost


class InMemoryBroker(Broker):
    """`connect()` as often as you like, from any thread. The methods after it are for tests."""

    direct_reply = refuses = dead_letters = True

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.host = VirtualHost()
        self.connections: dict[int, InMemoryConnection] = {}
        self.up = True
        self.alarm = ""

    def connect(self) -> Connection:
        """See Broker."""
        with self.lock:
            if not self.up:
                raise LinkLost("the broker is down")
            return InMemoryConnection(self)

    def cut(self) -> None:
        """Every connection is lost; what they held is delivered again."""
        with self.lock:
            for connection in list(self.connections.values()):
                connection.lose()

    def stop(self) -> None:
        """Go down: connections are lost, and none can be made until `up` is set again."""
        self.up = False
        self.cut()

    def block(self, reason: str) -> None:
        """Take no messages from now on, for `reason`; with an empty one, take them again and those held up so far."""
        with self.lock:
            self.alarm = reason
            for connection in list(self.connections.values()):
                connection.block(reason)

    def waiting(self, queue: str) -> list[Message]:
        """The messages in `queue` that nobody has been handed."""
        return list(self.host.queues[queue].messages)
