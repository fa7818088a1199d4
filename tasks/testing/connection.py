"""A connection to the broker in memory: sends commands, receives deliveries, confirms and returned messages."""

from __future__ import annotations

import contextlib
import itertools
import math
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from tasks.amqp.frames import Delivery
from tasks.amqp.gone import LinkLost
from tasks.amqp.messages import DIRECT_REPLY
from tasks.amqp.stream import TICK
from tasks.brokers.base import Returned, Settled
from tasks.testing.commands import FRAME_MAX, Ack, Publish, Reject, Stream, publishes, with_reply_to
from tasks.testing.virtual_host import Consumer, Message, Queue, VirtualHost

CHANNEL = 1  # every connection's, for all messages but those to be confirmed

_numbers = itertools.count(1)


class Server(Protocol):
    """The broker, as its connections use it. Its lock is held while anything of it changes."""

    lock: threading.RLock
    host: VirtualHost
    connections: dict[int, InMemoryConnection]
    alarm: str


class InMemoryConnection:
    """See base.Connection."""

    channel_id, frame_max = CHANNEL, FRAME_MAX

    def __init__(self, broker: Server) -> None:
        self.number, self._broker = next(_numbers), broker
        self.alive, self.blocked, self.received_at = True, "", time.monotonic()
        self._host = broker.host
        self._streams = Stream(), Stream()  # for `send` and for `publish`
        self._arrived = threading.Condition(broker.lock)
        self._inbox: deque[Delivery | Callable[[], None]] = deque()
        self._tags = itertools.count(1)
        self._unacked: dict[int, tuple[Consumer, Queue, Message]] = {}
        self._direct_tag: str | None = None
        self._confirming: dict[int, tuple[Settled, itertools.count[int]]] = {}  # channel -> callback, numbers
        self._returned: Returned | None = None
        self._wake: tuple[socket.socket, socket.socket] | None = None
        self._waker = -1
        broker.connections[self.number] = self
        self.blocked = broker.alarm

    def declare(self, entity: Any) -> None:
        """See Connection."""
        with self._usable():
            self._host.declare(entity, self)

    def consume(self, queue: str, tag: str, prefetch: int = 0, no_ack: bool = False) -> None:
        """See Connection."""
        with self._usable():
            if queue == DIRECT_REPLY:
                self._direct_tag = tag
                return
            if queue not in self._host.queues:
                raise self._lost(f"no queue {queue!r}")
            found = self._host.queues[queue]
            found.consumers.append(Consumer(self, tag, prefetch, no_ack))
            self._host.hand_out(found)

    def cancel(self, tag: str) -> None:
        """See Connection."""
        with self._usable():
            for queue in self._host.queues.values():
                for consumer in [one for one in queue.consumers if one.connection is self and one.tag == tag]:
                    queue.consumers.remove(consumer)

    def consumers(self, queue: str, until: float = math.inf) -> int | None:
        """See Connection."""
        with self._usable():
            found = self._host.queues.get(queue)
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
        self._take(self._streams[0], bytes(data))

    def send_parts(self, parts: list[Any]) -> None:
        """See Connection."""
        self.send(b"".join(parts))

    def publish(self, data: bytes) -> None:
        """See Connection."""
        self._take(self._streams[1], data)

    def drain(self, timeout: float | None = None) -> list[Delivery]:
        """See Connection."""
        if self._waker >= 0:
            poll = select.poll()
            for descriptor in (self.fileno(), self._waker):
                poll.register(descriptor, select.POLLIN)
            poll.poll(1000 * (TICK if timeout is None else timeout))
            timeout = 0.0
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

    def wake_by(self, descriptor: int) -> None:
        """See Connection."""
        self._waker = descriptor

    @property
    def midway(self) -> bool:
        """Return False: messages arrive whole."""
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

    # Called by the broker, which holds its lock.

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
        """Break the connection, from either side: what was held goes back, marked as redelivered."""
        with self._arrived:
            if not self.alive:
                return
            self.alive = False
            self._broker.connections.pop(self.number, None)
            self._host.forget(self)
            touched = []
            for _, queue, message in reversed(self._unacked.values()):
                self._host.put_back(queue, message)
                touched.append(queue)
            self._unacked.clear()
            for queue in touched:
                if queue.name in self._host.queues:
                    self._host.hand_out(queue)
            self._wake_up()

    def block(self, reason: str) -> None:
        """Take no messages from now on, or (without a reason) take them again."""
        self._notify(lambda: setattr(self, "blocked", reason))
        for stream in self._streams if not reason else ():
            stuck, stream.stuck = stream.stuck, []
            for data in stuck:
                self._take(stream, data)

    # Frames that were sent.

    def _take(self, stream: Stream, data: bytes) -> None:
        with self._usable():
            if stream.stuck or (self._broker.alarm and publishes(data)):
                stream.stuck.append(data)
                return
            for command in stream.read(data):
                match command:
                    case Publish():
                        self._publish(command)
                    case Ack():
                        self._acknowledge(command)
                    case Reject():
                        self._reject(command)

    def _publish(self, sent: Publish) -> None:
        if sent.exchange == "" and sent.key.startswith(f"{DIRECT_REPLY}."):
            address = sent.key.rpartition(".")[2]
            asked = self._broker.connections.get(int(address)) if address.isdecimal() else None
            if asked is not None:
                asked.deliver_reply(Message(sent.key, sent.properties, sent.body))
            return
        properties = with_reply_to(sent.properties, f"{DIRECT_REPLY}.{self.number}")
        try:
            found, taken = self._host.route(sent.exchange, Message(sent.key, properties, sent.body))
        except LinkLost:
            self.lose()
            raise
        returned = self._returned
        if sent.mandatory and not found and returned is not None:
            self._notify(lambda: returned(sent.correlation_id))
        if confirming := self._confirming.get(sent.channel):
            settled, numbers = confirming
            number = next(numbers)
            self._notify(lambda: settled(number, False, taken))

    def _acknowledge(self, sent: Ack) -> None:
        for tag in [held for held in self._unacked if held == sent.tag or (sent.multiple and held <= sent.tag)]:
            consumer, queue, _ = self._unacked.pop(tag)
            consumer.held -= 1
            self._host.hand_out(queue)

    def _reject(self, sent: Reject) -> None:
        consumer, queue, message = self._unacked.pop(sent.tag)
        consumer.held -= 1
        if sent.requeue:
            self._host.put_back(queue, message)
        else:
            self._host.give_up(queue, message)
        self._host.hand_out(queue)

    @contextlib.contextmanager
    def _usable(self) -> Iterator[None]:
        """Hold the broker's lock. Raises LinkLost where the connection is lost by the time that it is free."""
        with self._arrived:
            if not self.alive:
                raise LinkLost("the connection was cut")
            yield

    def _lost(self, why: str) -> LinkLost:
        self.lose()
        return LinkLost(why)

    def _notify(self, one: Delivery | Callable[[], None]) -> None:
        self._inbox.append(one)
        self._wake_up()

    def _wake_up(self) -> None:
        with self._arrived:
            if self._wake is not None:
                with contextlib.suppress(OSError):  # full: the reader is about to wake; closed: there is no reader
                    self._wake[1].send(b"\0")
            self._arrived.notify_all()
