"""Exchanges, queues and consumers: the routing of messages, their delivery, and the bounds of queues."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Protocol

from kombu import Exchange

from tasks.amqp.gone import LinkLost
from warren.errors import ConfigurationError


@dataclass
class Message:
    """One message on its way. `properties` are the raw bytes from the property flags on."""

    key: str
    properties: bytes
    body: bytes
    redelivered: bool = False


class Receiver(Protocol):
    """The connection of a consumer."""

    def deliver(self, consumer: Consumer, queue: Queue, message: Message) -> None:
        """Hand over one message."""


@dataclass
class Consumer:
    """A consumer of a queue. `held`: messages that it has not acknowledged."""

    connection: Receiver
    tag: str
    prefetch: int
    no_ack: bool
    held: int = 0

    @property
    def ready(self) -> bool:
        """Return whether it may be handed one more message."""
        return self.no_ack or not self.prefetch or self.held < self.prefetch


@dataclass
class Queue:
    """A queue as declared."""

    name: str
    arguments: dict[str, Any]
    owner: Receiver | None = None  # only an exclusive queue has one
    messages: deque[Message] = field(default_factory=deque)
    consumers: deque[Consumer] = field(default_factory=deque)  # the next in turn first


class VirtualHost:
    """The declarations and messages of a broker. Callers hold the broker's lock."""

    def __init__(self) -> None:
        self.queues: dict[str, Queue] = {}
        self.exchanges: dict[str, str] = {}  # name -> type
        self.bindings: list[tuple[str, str, str]] = []  # exchange, key, queue

    def declare(self, entity: Any, owner: Receiver) -> None:
        """Declare a kombu Exchange, or a Queue with its exchange."""
        exchange = entity if isinstance(entity, Exchange) else entity.exchange
        if exchange.name and self.exchanges.setdefault(exchange.name, exchange.type) != exchange.type:
            raise ConfigurationError(f"exchange {exchange.name} exists and is not of type {exchange.type}")
        if entity is exchange:
            return
        arguments = dict(entity.queue_arguments or {})
        if entity.max_length is not None:
            arguments["x-max-length"] = entity.max_length
        queue = self.queues.setdefault(entity.name, Queue(entity.name, arguments, owner if entity.exclusive else None))
        if queue.arguments != arguments:
            raise ConfigurationError(f"queue {entity.name} exists with other arguments: {queue.arguments}, {arguments}")
        binding = (exchange.name, entity.routing_key or "", entity.name)
        if exchange.name and binding not in self.bindings:
            self.bindings.append(binding)

    def route(self, exchange: str, message: Message) -> tuple[bool, bool]:
        """Put `message` into its queues; return whether there is any, and whether all took it. Raises LinkLost."""
        if exchange == "":
            names = {message.key} & set(self.queues)
        else:
            kind = self.exchanges.get(exchange)
            if kind is None:
                raise LinkLost(f"no exchange {exchange!r}")
            names = {queue for at, key, queue in self.bindings if at == exchange and _matches(kind, key, message.key)}
        taken = [self._put(self.queues[name], message) for name in sorted(names)]
        return bool(names), all(taken)

    def hand_out(self, queue: Queue) -> None:
        """Deliver waiting messages to the consumers that may have more, in turn."""
        while queue.messages and (consumer := next((one for one in queue.consumers if one.ready), None)):
            queue.consumers.remove(consumer)
            queue.consumers.append(consumer)
            consumer.connection.deliver(consumer, queue, queue.messages.popleft())

    def put_back(self, queue: Queue, message: Message) -> None:
        """Put a message back at the head of its queue, marked as redelivered."""
        message.redelivered = True
        queue.messages.appendleft(message)

    def give_up(self, queue: Queue, message: Message) -> None:
        """Move a message to the dead letters, where the queue has any."""
        exchange = queue.arguments.get("x-dead-letter-exchange")
        if exchange is not None:
            key = queue.arguments.get("x-dead-letter-routing-key", message.key)
            self.route(exchange, Message(key, message.properties, message.body))

    def forget(self, connection: Receiver) -> None:
        """Remove the exclusive queues and the consumers of a connection that is gone."""
        for queue in list(self.queues.values()):
            if queue.owner is connection:
                del self.queues[queue.name]
                self.bindings = [binding for binding in self.bindings if binding[2] != queue.name]
            for consumer in [one for one in queue.consumers if one.connection is connection]:
                queue.consumers.remove(consumer)

    def _put(self, queue: Queue, message: Message) -> bool:
        limit = queue.arguments.get("x-max-length")
        if limit is not None and len(queue.messages) >= limit and not any(one.ready for one in queue.consumers):
            if queue.arguments.get("x-overflow") == "reject-publish":
                return False
            self.give_up(queue, queue.messages.popleft())
        queue.messages.append(Message(message.key, message.properties, message.body))
        self.hand_out(queue)
        return True


def _matches(kind: str, pattern: str, key: str) -> bool:
    if kind == "fanout":
        return True
    return _topic(pattern.split("."), key.split(".")) if kind == "topic" else pattern == key


def _topic(pattern: list[str], parts: list[str]) -> bool:
    if not pattern:
        return not parts
    if pattern[0] == "#":
        return any(_topic(pattern[1:], parts[skipped:]) for skipped in range(len(parts) + 1))
    return bool(parts) and pattern[0] in ("*", parts[0]) and _topic(pattern[1:], parts[1:])
