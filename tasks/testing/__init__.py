"""Workers without servers, for tests: `serving` in one process, on a broker that speaks the frames of RabbitMQ.

The broker routes messages (by default, direct, fanout and topic exchanges), confirms them, and passes direct replies.
It counts prefetch per consumer, and redelivers what a lost connection held. It returns messages that no queue takes,
refuses or drops those that a bounded queue cannot hold, and moves rejected ones to their dead-letter exchange. It has
no time to live, and no persistence.

commands.py reads what a connection sends, connection.py does it, virtual_host.py has exchanges, queues and consumers;
store.py stands for Redis. Nothing that runs outside of tests imports this.
"""

from tasks.testing.broker import InMemoryBroker
from tasks.testing.serving import Served, serving

__all__ = ["InMemoryBroker", "Served", "serving"]
