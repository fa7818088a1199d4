"""A broker within one process: clients and workers under test talk to it in the same frames as to RabbitMQ.

It routes (default, direct, fanout and topic exchanges), counts prefetch per consumer, delivers again what a lost
connection held, returns what no queue takes, refuses or drops what a bounded queue cannot hold, moves what is rejected
to its dead-letter exchange, passes direct replies, and confirms. Left out: time to live, and keeping anything.

commands.py reads what a connection sends, connection.py does it, virtual_host.py has exchanges, queues and consumers.
"""

from tasks.brokers.in_memory.broker import InMemoryBroker

__all__ = ["InMemoryBroker"]
