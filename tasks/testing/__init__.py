"""Workers without servers, for tests: `serving` in one process, on a broker that speaks the frames of RabbitMQ.

The broker routes (default, direct, fanout and topic exchanges), counts prefetch per consumer, delivers again what a
lost connection held, returns what no queue takes, refuses or drops what a bounded queue cannot hold, moves what is
rejected to its dead-letter exchange, passes direct replies, and confirms. It has no time to live, and no persistence.

commands.py reads what a connection sends, connection.py does it, virtual_host.py has exchanges, queues and consumers;
store.py stands for Redis. Nothing that runs outside of tests imports this.
"""

from tasks.testing.broker import InMemoryBroker
from tasks.testing.serving import Served, serving

__all__ = ["InMemoryBroker", "Served", "serving"]
