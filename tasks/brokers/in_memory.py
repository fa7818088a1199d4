"""A broker within one process: clients and workers under test talk to it in the same frames as to RabbitMQ.

It routes (default, direct, fanout and topic exchanges), counts prefetch per consumer, delivers again what a lost
connection held, returns what no queue takes, refuses or drops what a bounded queue cannot hold, moves what is rejected
to its dead-letter exchange, passes direct replies, and confirms. Left out: time to live, and keeping anything.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kombu import Exchange

from tasks.amqp import frames
from tasks.amqp.connection import LinkLost
from tasks.amqp.frames import Delivery, Properties
from tasks.amqp.messages import DIRECT_REPLY
from tasks.amqp.parser import Content, Frame, Parser
from tasks.amqp.stream import TICK
from tasks.brokers.base import Broker, Connection, Returned, Settled
from warren.errors import ConfigurationError

FRAME_MAX = 131_072  # bytes, as RabbitMQ's default
CHANNEL = 1  # of every connection, for all but what is to be confirmed

_ACK, _REJECT = b"\x00\x3c\x00\x50", b"\x00\x3c\x00\x5a"
_TAG_AND_BIT = struct.Struct(">QB")
_connections = itertools.count(1)


@dataclass
class Message:
    """One message on its way. `properties` are the raw bytes from the property flags on."""

    key: str
    properties: bytes
    body: bytes
    redelivered: bool = False


@dataclass
class Consumer:
    """Who consumes a queue. `held`: messages that it has not acknowledged."""

    connection: InMemoryConnection
    tag: str
    prefetch: int
    no_ack: bool
    held: int = 0

    @property
    def ready(self) -> bool:
        """Whether it may be handed one more."""
        return self.no_ack or not self.prefetch or self.held < self.prefetch


@dataclass
class Queue:
    """A queue as declared."""

    name: str
    arguments: dict[str, Any]
    owner: InMemoryConnection | None = None  # of an exclusive queue
    messages: deque[Message] = field(default_factory=deque)
    consumers: deque[Consumer] = field(default_factory=deque)  # the next in turn first


class InMemoryBroker(Broker):
    """`connect()` as often as you like, from any thread. The methods after it are for tests."""

    direct_reply = refuses = dead_letters = True

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.queues: dict[str, Queue] = {}
        self.exchanges: dict[str, str] = {}  # name -> type
        self.bindings: list[tuple[str, str, str]] = []  # exchange, key, queue
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
        return list(self.queues[queue].messages)

    # What connections call, holding the lock.

    def declare(self, entity: Any, owner: InMemoryConnection) -> None:
        """A kombu Exchange, or a Queue with its exchange."""
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
        """Whether any queue is bound for `message`, and whether all of those took it."""
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
        """Give what waits to whoever may have more, in turn."""
        while queue.messages and (consumer := next((one for one in queue.consumers if one.ready), None)):
            queue.consumers.remove(consumer)
            queue.consumers.append(consumer)
            consumer.connection.deliver(consumer, queue, queue.messages.popleft())

    def give_up(self, queue: Queue, message: Message) -> None:
        """To the dead letters, where the queue has any."""
        exchange = queue.arguments.get("x-dead-letter-exchange")
        if exchange is not None:
            key = queue.arguments.get("x-dead-letter-routing-key", message.key)
            self.route(exchange, Message(key, message.properties, message.body))

    def forget(self, connection: InMemoryConnection) -> None:
        """A connection is gone, and its exclusive queues and consumers with it."""
        self.connections.pop(connection.number, None)
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


class InMemoryConnection:
    """See base.Connection."""

    channel_id, frame_max = CHANNEL, FRAME_MAX

    def __init__(self, broker: InMemoryBroker) -> None:
        self.number, self._broker = next(_connections), broker
        self.alive, self.blocked, self.received_at = True, "", time.monotonic()
        self._ways = _Way(), _Way()  # of `send` and of `publish`
        self._arrived = threading.Condition(broker.lock)
        self._inbox: deque[Delivery | Callable[[], None]] = deque()
        self._tags = itertools.count(1)
        self._unacked: dict[int, tuple[Consumer, Queue, Message]] = {}
        self._direct_tag: str | None = None
        self._confirming: dict[int, tuple[Settled, itertools.count[int]]] = {}  # channel -> callback, numbers
        self._returned: Returned | None = None
        self._wake: tuple[socket.socket, socket.socket] | None = None
        broker.connections[self.number] = self
        self.blocked = broker.alarm

    def declare(self, entity: Any) -> None:
        """See Connection."""
        with self._usable():
            self._broker.declare(entity, self)

    def consume(self, queue: str, tag: str, prefetch: int = 0, no_ack: bool = False) -> None:
        """See Connection."""
        with self._usable():
            if queue == DIRECT_REPLY:
                self._direct_tag = tag
                return
            if queue not in self._broker.queues:
                raise self._lost(f"no queue {queue!r}")
            found = self._broker.queues[queue]
            found.consumers.append(Consumer(self, tag, prefetch, no_ack))
            self._broker.hand_out(found)

    def cancel(self, tag: str) -> None:
        """See Connection."""
        with self._usable():
            for queue in self._broker.queues.values():
                for consumer in [one for one in queue.consumers if one.connection is self and one.tag == tag]:
                    queue.consumers.remove(consumer)

    def consumers(self, queue: str) -> int:
        """See Connection."""
        with self._usable():
            found = self._broker.queues.get(queue)
            return len(found.consumers) if found is not None else 0

    def confirm(self, settled: Settled) -> int:
        """See Connection."""
        channel = CHANNEL + 1 + len(self._confirming)
        self._confirming[channel] = (settled, itertools.count(1))
        return channel

    def on_returned(self, returned: Returned) -> None:
        """See Connection."""
        self._returned = returned

    def send(self, data: bytes | memoryview) -> None:
        """See Connection."""
        self._take(self._ways[0], bytes(data))

    def send_parts(self, parts: list[Any]) -> None:
        """See Connection."""
        self.send(b"".join(parts))

    def publish(self, data: bytes) -> None:
        """See Connection."""
        self._take(self._ways[1], data)

    def drain(self, timeout: float | None = None) -> list[Delivery]:
        """See Connection."""
        with self._arrived:
            limit = time.monotonic() + (TICK if timeout is None else timeout)
            while not self._inbox and self.alive and (left := limit - time.monotonic()) > 0:
                self._arrived.wait(left)
            if not self._inbox and not self.alive:
                raise LinkLost("the connection was cut")
            arrived, self._inbox = self._inbox, deque()
            self.received_at = time.monotonic() if arrived else self.received_at
            if self._wake is not None and arrived:
                with contextlib.suppress(BlockingIOError):
                    self._wake[0].recv(1 << 16)
        deliveries = []
        for one in arrived:
            if isinstance(one, Delivery):
                deliveries.append(one)
            else:
                one()
        return deliveries

    @property
    def midway(self) -> bool:
        """Messages arrive whole."""
        return False

    def fileno(self) -> int:
        """See Connection."""
        with self._broker.lock:
            if self._wake is None:
                self._wake = socket.socketpair()
                for end in self._wake:
                    end.setblocking(False)
                if self._inbox:
                    self._wake_up()
            return self._wake[0].fileno()

    def close(self) -> None:
        """See Connection."""
        self.lose()
        if self._wake is not None:
            for end in self._wake:
                end.close()

    discard = close

    # What the broker calls, holding its lock.

    def deliver(self, consumer: Consumer, queue: Queue, message: Message) -> None:
        """Hand over one message."""
        tag = next(self._tags)
        if not consumer.no_ack:
            self._unacked[tag] = (consumer, queue, message)
            consumer.held += 1
        self._notify(Delivery(consumer.tag, tag, message.redelivered, message.properties, message.body))

    def deliver_reply(self, message: Message) -> None:
        """Hand over a direct reply."""
        if self._direct_tag is not None:
            self._notify(Delivery(self._direct_tag, next(self._tags), False, message.properties, message.body))

    def lose(self) -> None:
        """The connection breaks, from whichever side: what was held goes back, marked as redelivered."""
        with self._arrived:
            if not self.alive:
                return
            self.alive = False
            self._broker.forget(self)
            touched = []
            for _, queue, message in reversed(self._unacked.values()):
                message.redelivered = True
                queue.messages.appendleft(message)
                touched.append(queue)
            self._unacked.clear()
            for queue in touched:
                if queue.name in self._broker.queues:
                    self._broker.hand_out(queue)
            self._wake_up()

    def block(self, reason: str) -> None:
        """The broker takes no messages, or (no reason) takes them again."""
        self._notify(lambda: setattr(self, "blocked", reason))
        for way in self._ways if not reason else ():
            stuck, way.stuck = way.stuck, []
            for data in stuck:
                self._take(way, data)

    # What was sent.

    def _take(self, way: _Way, data: bytes) -> None:
        with self._usable():
            if way.stuck or (self._broker.alarm and _publishes(data)):
                way.stuck.append(data)
                return
            for event in way.parser.feed(data):
                if isinstance(event, Content):
                    self._route(event)
                elif isinstance(event, Frame) and event.payload[:4] == _ACK:
                    self._acknowledge(*_TAG_AND_BIT.unpack_from(event.payload, 4))
                elif isinstance(event, Frame) and event.payload[:4] == _REJECT:
                    self._reject(*_TAG_AND_BIT.unpack_from(event.payload, 4))

    def _route(self, content: Content) -> None:
        exchange, at = _short(content.method, 6)
        key, at = _short(content.method, at)
        mandatory = bool(content.method[at] & 1)
        correlation_id = _read(content.properties).correlation_id
        if exchange == "" and key.startswith(f"{DIRECT_REPLY}."):
            address = key.rpartition(".")[2]
            asked = self._broker.connections.get(int(address)) if address.isdecimal() else None
            if asked is not None:
                asked.deliver_reply(Message(key, content.properties, content.body))
            return
        properties = _with_reply_to(content.properties, f"{DIRECT_REPLY}.{self.number}")
        try:
            found, taken = self._broker.route(exchange, Message(key, properties, content.body))
        except LinkLost:
            self.lose()
            raise
        returned = self._returned
        if mandatory and not found and returned is not None:
            self._notify(lambda: returned(correlation_id))
        if confirming := self._confirming.get(content.channel):
            settled, numbers = confirming
            number = next(numbers)
            self._notify(lambda: settled(number, False, taken))

    def _acknowledge(self, tag: int, multiple: int) -> None:
        for one in [held for held in self._unacked if held == tag or (multiple and held <= tag)]:
            consumer, queue, _ = self._unacked.pop(one)
            consumer.held -= 1
            self._broker.hand_out(queue)

    def _reject(self, tag: int, requeue: int) -> None:
        consumer, queue, message = self._unacked.pop(tag)
        consumer.held -= 1
        if requeue:
            message.redelivered = True
            queue.messages.appendleft(message)
        else:
            self._broker.give_up(queue, message)
        self._broker.hand_out(queue)

    def _usable(self) -> threading.Condition:
        if not self.alive:
            raise LinkLost("the connection was cut")
        return self._arrived

    def _lost(self, why: str) -> LinkLost:
        self.lose()
        return LinkLost(why)

    def _notify(self, one: Delivery | Callable[[], None]) -> None:
        self._inbox.append(one)
        self._wake_up()

    def _wake_up(self) -> None:
        with self._arrived:
            if self._wake is not None:
                with contextlib.suppress(OSError):  # full: whoever reads is about to wake; closed: nobody reads
                    self._wake[1].send(b"\0")
            self._arrived.notify_all()


class _Way:
    """One stream of bytes to the broker. `stuck`: what is not read while the broker is short of memory."""

    def __init__(self) -> None:
        self.parser = Parser(FRAME_MAX)
        self.stuck: list[bytes] = []


def _publishes(data: bytes) -> bool:
    return any(isinstance(event, Content) for event in Parser(FRAME_MAX).feed(data))


def _short(data: bytes, at: int) -> tuple[str, int]:
    end = at + 1 + data[at]
    return data[at + 1 : end].decode(), end


def _read(raw: bytes) -> Properties:
    """The properties; none where they cannot be read, which is for the receiver to find out."""
    try:
        return frames.read_properties(raw)
    except frames.Malformed:
        return Properties("", {}, "", "", "")


def _with_reply_to(raw: bytes, address: str) -> bytes:
    """`raw` with the address of its sender in the place of DIRECT_REPLY, as RabbitMQ writes it."""
    if _read(raw).reply_to != DIRECT_REPLY:
        return raw
    before, _, after = raw.rpartition(frames.short(DIRECT_REPLY))
    return before + frames.short(address) + after


def _matches(kind: str, pattern: str, key: str) -> bool:
    if kind == "fanout":
        return True
    return _topic(pattern.split("."), key.split(".")) if kind == "topic" else pattern == key


def _topic(pattern: list[str], words: list[str]) -> bool:
    if not pattern:
        return not words
    if pattern[0] == "#":
        return any(_topic(pattern[1:], words[skipped:]) for skipped in range(len(words) + 1))
    return bool(words) and pattern[0] in ("*", words[0]) and _topic(pattern[1:], words[1:])
