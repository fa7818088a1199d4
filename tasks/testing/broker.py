"""The broker in memory, which a test can stop, block, or cut off."""

from __future__ import annotations

import threading

from tasks.amqp.gone import LinkLost
from tasks.brokers.base import Broker, Connection
from tasks.testing.connection import InMemoryConnection
from tasks.testing.virtual_host import Message, VirtualHost


class InMemoryBroker(Broker):
    """A broker in memory. `connect` any number of times, from any thread; the methods after it are for tests."""

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
        """Break every connection; what they held is delivered again."""
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
        """Return the messages in `queue` that were not delivered yet."""
        return list(self.host.queues[queue].messages)
