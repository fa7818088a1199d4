"""One AMQP connection: a socket that feeds the parser, and py-amqp for all that is rare and intricate.

py-amqp does login, TLS, channels, declarations, consumers, errors. Messages out and in, thousands per second, go
straight between the socket, `frames` and `parser`: many messages in one write, all that has arrived in one read.
Nothing is ever read while sending (py-amqp's own basic_publish does that), so no handler is entered from within
another.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from amqp.exceptions import PreconditionFailed
from celery.utils.log import get_logger

from tasks import compat
from tasks.amqp import frames
from tasks.amqp.counting import Counting
from tasks.amqp.frames import Delivery
from tasks.amqp.gone import LinkLost, Unanswered
from tasks.amqp.heartbeat import heartbeats
from tasks.amqp.notices import Notices, Settled, may_be_the_end, settles
from tasks.amqp.parser import Event, FrameError, Parser
from tasks.amqp.publisher import Publisher
from tasks.amqp.stream import stream
from warren.errors import ConfigurationError

logger = get_logger(__name__)

METHOD_TIMEOUT = 15.0  # s that the broker may take to answer a declaration
CLOSE_TIMEOUT = 5.0  # s that it may take to answer a close, before which it reads what was sent


class Link:
    """See brokers.base.Connection. `app`: a Celery app whose broker speaks AMQP.

    Raises what kombu raises when the broker cannot be reached.
    """

    def __init__(self, app: Any, heartbeat: float = 30.0) -> None:
        self._app = app
        self._kombu = app.connection_for_write(heartbeat=heartbeat)
        others = max(1, len(self._kombu.alt))  # tries each of several brokers once; callers try again in their own way
        self._kombu.ensure_connection(max_retries=others, interval_start=0)
        self.connection = self._kombu.connection
        self.frame_max: int = self.connection.frame_max
        self.heartbeat: float = self.connection.heartbeat
        self.alive, self.blocked = True, ""
        self.sent_at = self.received_at = time.monotonic()
        self._parser = Parser(self.frame_max)
        self._events: deque[Event] = deque()
        self._kept: list[Delivery] = []  # deliveries that came while py-amqp waited for something else
        self._settling: list[Event] = []  # and confirms and returned messages
        self._answer_by: float | None = None  # when a method that is under way has to be answered
        self._until = math.inf  # when its answer is of no use any more
        self._counting = Counting(self.connection)
        self._notices = Notices(self._set_blocked, self._lost)
        self._publisher = Publisher(self._connect_publisher, self._lost)
        self._held_up = self._publisher.held_up  # checked in each turn
        try:
            # From here on every byte of this connection passes `_fill` and `send`, py-amqp's too.
            sock, unused = compat.take_over(self.connection, self._read_frame, self.send)
            self._stream = stream(sock)
            self._events.extend(self._parser.feed(unused))
            with self._method():
                self.channel = self.connection.channel()
            self.channel_id: int = self.channel.channel_id
        except BaseException:
            self.discard()
            raise
        heartbeats.tend(self)

    # Done by py-amqp.

    def declare(self, entity: Any) -> None:
        """See Connection."""
        try:
            with self._method():
                entity(self.channel).declare()
        except PreconditionFailed as error:
            self.discard()  # the channel is closed, and with it every consumer
            raise ConfigurationError(
                f"{entity.name} exists on the broker with other arguments than it has here: {error}; "
                "stop the programs that use it and delete it there (or the whole run), or give it the old arguments"
            ) from error

    def consume(self, queue: str, tag: str, prefetch: int = 0, no_ack: bool = False) -> None:
        """See Connection."""
        with self._method():
            self.channel.basic_qos(0, prefetch, False)
            self.channel.basic_consume(queue, consumer_tag=tag, no_ack=no_ack)

    def cancel(self, tag: str) -> None:
        """See Connection."""
        with self._method():
            self.channel.basic_cancel(tag)

    def consumers(self, queue: str, until: float = math.inf) -> int | None:
        """See Connection."""
        with self._method(until):
            return self._counting.consumers(queue)

    def confirm(self, settled: Settled) -> int:
        """See Connection."""
        with self._method():
            channel = self.connection.channel()
            channel.confirm_select()
        self._notices.settled[channel.channel_id] = settled
        return int(channel.channel_id)

    def on_returned(self, returned: Callable[[str], None]) -> None:
        """See Connection."""
        self._notices.returned = returned

    # Writing.

    def send(self, data: bytes | memoryview) -> None:
        """See Connection."""
        try:
            self._stream.write(data)
        except (OSError, ValueError) as error:
            raise self._lost(f"cannot write: {error}") from error
        self.sent_at = time.monotonic()

    def send_parts(self, parts: list[Any]) -> None:
        """See Connection."""
        try:
            self._stream.write_parts(parts)
        except (OSError, ValueError) as error:
            raise self._lost(f"cannot write: {error}") from error
        self.sent_at = time.monotonic()

    def beat(self) -> None:
        """Send a heartbeat, unless that would have to wait: then something else is being sent."""
        try:
            if self._stream.write_at_once(frames.HEARTBEAT_FRAME):
                self.sent_at = time.monotonic()
        except (OSError, ValueError) as error:
            raise self._lost(f"cannot write: {error}") from error

    def publish(self, data: bytes) -> None:
        """See Connection. It uses another connection: a broker short of memory stops reading those that publish."""
        self._publisher.publish(data)

    def _connect_publisher(self) -> Link:
        publisher = Link(self._app, self.heartbeat)
        if publisher.channel_id != self.channel_id:
            publisher.discard()
            raise self._lost(f"channel {publisher.channel_id} was opened in the place of {self.channel_id}")
        return publisher

    # Reading.

    def drain(self, timeout: float | None = None) -> list[Delivery]:
        """See Connection. Also raises py-amqp's errors when the broker closes the channel or the connection."""
        if self._held_up:
            self._publisher.let_go()
        deliveries, self._kept = self._kept, []
        events = self._events
        if self._settling:
            events.extendleft(reversed(self._settling))
            self._settling.clear()
        if not deliveries and not events:
            self._fill(timeout)
        while events:
            event = events.popleft()
            if isinstance(event, Delivery):
                deliveries.append(event)
            elif deliveries and may_be_the_end(event):
                events.appendleft(event)  # hand out the deliveries before it first
                break
            elif not self._notices.take(event):
                compat.hand_frame(self.connection, event)
        return deliveries

    def wake_by(self, descriptor: int) -> None:
        """See Connection."""
        self._stream.waker = descriptor

    @property
    def midway(self) -> bool:
        """See Connection."""
        return self._parser.midway

    def fileno(self) -> int:
        """See Connection."""
        return self._stream.fileno()

    def _fill(self, timeout: float | None) -> None:
        """Read the bytes that are there and have them parsed."""
        try:
            room = self._parser.room()
            count: int | None
            if room is None:
                data = self._stream.read(timeout)
                count = None if data is None else len(data)
            else:
                data, count = None, self._stream.read_into(room, timeout)
        except (OSError, ValueError) as error:
            raise self._lost(f"cannot read: {error}") from error
        if count is None:
            silent = time.monotonic() - self.received_at
            if self.heartbeat and silent > 2 * self.heartbeat:
                raise self._lost(f"nothing from the broker for {silent:.0f} s")
            return
        if not count:
            raise self._lost("the broker closed the connection")
        self.received_at = time.monotonic()
        try:
            self._events.extend(self._parser.filled(count) if data is None else self._parser.feed(data))
        except FrameError as error:
            raise self._lost(f"the broker sent bytes that are not AMQP: {error}") from error

    def _set_blocked(self, reason: str) -> None:
        self.blocked = reason

    @contextmanager
    def _method(self, until: float = math.inf) -> Iterator[None]:
        """Raise LinkLost where a method called within this block is not answered within METHOD_TIMEOUT.

        Raises Unanswered where it is not answered by `until`.
        """
        self._answer_by, self._until = time.monotonic() + METHOD_TIMEOUT, until
        try:
            yield
        finally:
            self._answer_by, self._until = None, math.inf

    def _read_frame(self, *_: Any) -> tuple[int, int, bytes]:
        """Return the next frame for py-amqp, in the place of its transport.read_frame, while it waits for an answer."""
        limit = self._answer_by or time.monotonic() + METHOD_TIMEOUT
        while True:
            while self._events:
                event = self._events.popleft()
                if isinstance(event, Delivery):
                    self._kept.append(event)
                elif settles(event):  # what is called then may read on this connection, also the answer awaited here
                    self._settling.append(event)
                elif not self._notices.take(event):
                    return event  # type: ignore[return-value] # a Frame: all else is dealt with here
            if time.monotonic() > limit:
                raise self._lost(f"the broker did not answer within {METHOD_TIMEOUT:.0f} s")
            if time.monotonic() > self._until:
                raise Unanswered
            self._fill(None)

    # The end.

    def _lost(self, why: str) -> LinkLost:
        self.alive = False
        return LinkLost(why)

    def close(self) -> None:
        """See Connection."""
        was_alive, self.alive = self.alive, False
        if was_alive and not self.blocked:  # a broker that takes no messages does not read connection.close either
            try:
                with self._method(time.monotonic() + CLOSE_TIMEOUT):
                    self._kombu.transport.close_connection(self.connection)
            except Exception as error:
                logger.debug("closing a connection: %s", error)
        self._publisher.close()
        self.discard()

    def discard(self) -> None:
        """See Connection."""
        self.alive = False
        try:
            compat.drop(self.connection)
        except Exception as error:
            logger.debug("dropping a connection: %s", error)
        self._publisher.discard()

    def abandon(self) -> None:
        """Close this process's copy of the socket after a fork; the parent's connection stays open."""
        self.alive = False
        self._stream.abandon()
