"""One AMQP connection for calls: py-amqp opens and tends it, the frames of a call pass beside py-amqp.

py-amqp does what is intricate and rare: login, TLS, channels, declarations, consumers, errors. What happens thousands
of times a second, a message out or in, goes straight between the socket and `frames`: many messages in one write, all
that has arrived in one read. Nothing is ever read while sending (py-amqp's own basic_publish does that), so no handler
is entered from within another.
"""

from __future__ import annotations

import os
import select
import socket
import ssl
import struct
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from amqp.exceptions import AMQPError, NotFound, PreconditionFailed
from celery.utils.log import get_logger
from kombu.exceptions import OperationalError

from tasks.amqp import frames
from tasks.amqp.frames import FRAME, OVERHEAD, Delivery
from warren.errors import ConfigurationError

logger = get_logger(__name__)

READ_BYTES = 1 << 18  # at most this much is taken from the socket at once
PARTS_AT_ONCE = 48  # buffers in one system call: a third of each is a frame of 128 KiB
TICK = 0.2  # s after which a wait without end looks up, so that a thread can be told to stop
SEND_TIMEOUT = (
    15.0  # s that a write may be held up (a broker short of memory stops reading) before the link is given up
)
METHOD_TIMEOUT = 15.0  # s that the broker may take to answer a declaration

_BODY_BYTES = struct.Struct(">Q")
_TAG = struct.Struct(">Q?")

GONE = (OSError, AMQPError, OperationalError)  # what a lost connection, or one that cannot be made, raises


class LinkLost(ConnectionError):
    """The connection is gone, or of no use any more; what was under way on it may or may not have arrived."""


class Link:
    """A connection with one channel. Send from any thread; only one thread may drain at a time.

    `app`: a Celery app whose broker speaks AMQP. Raises what kombu raises when the broker cannot be reached.
    """

    def __init__(self, app: Any, heartbeat: float = 30.0) -> None:
        self._kombu = app.connection_for_write(heartbeat=heartbeat)
        self._kombu.ensure_connection(max_retries=1, interval_start=0)  # who calls has a patience of its own
        self.connection = self._kombu.connection
        self.channel = self.connection.channel()
        self.channel_id: int = self.channel.channel_id
        self.frame_max: int = self.connection.frame_max
        self.heartbeat: float = self.connection.heartbeat
        self.alive = True
        self.blocked = ""
        self._returned: Callable[[str], None] = lambda _: None
        self.channel.events["basic_return"].add(self._on_return)
        self._sock = self.connection.transport.sock
        self._tls = isinstance(self._sock, ssl.SSLSocket)
        self._lock = threading.Lock()
        self._data: bytes | bytearray = b""
        self._position, self._need = 0, 0
        self._slow: list[Delivery] = []  # what py-amqp took in while it waited for something else
        self.sent_at = self.heard_at = time.monotonic()
        self._take_over()
        _tender.tend(self)

    def _take_over(self) -> None:
        """From here on every byte of this connection is read by `_fill` and written by `send`, py-amqp's too."""
        transport = self.connection.transport
        self._data, transport._read_buffer = bytes(transport._read_buffer), b""
        transport.read_frame = self._read_frame
        transport._write = self.send
        for option, seconds in ((socket.SO_RCVTIMEO, TICK), (socket.SO_SNDTIMEO, SEND_TIMEOUT)):
            whole = int(seconds)
            # A timeout in the kernel is one system call a read; one of Python's would be a poll besides.
            self._sock.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", whole, int((seconds - whole) * 1e6)))

    def consume(self, queue: str, tag: str, prefetch: int = 0, no_ack: bool = False) -> None:
        """Consume `queue`; its deliveries bear `tag`. `prefetch`: messages to hold unacknowledged, 0 for any number."""
        self.channel.basic_qos(0, prefetch, False)
        self.channel.basic_consume(
            queue, consumer_tag=tag, callback=self._slowly, no_ack=no_ack, on_cancel=self._cancelled
        )

    def declare(self, entity: Any) -> None:
        """Declare a kombu Queue or Exchange. Raises ConfigurationError where it exists with other arguments."""
        try:
            entity(self.channel).declare()
        except PreconditionFailed as error:
            self.discard()  # the channel is closed, and with it every consumer
            raise ConfigurationError(
                f"{entity.name} exists on the broker with other arguments than this version gives it: {error}; "
                "stop whoever uses it and delete it there (or the whole run), then start again"
            ) from error

    def cancel(self, tag: str) -> None:
        """Consume no more under `tag`; what was delivered stays held."""
        self.channel.basic_cancel(tag)

    def consumers(self, queue: str) -> int:
        """How many consume `queue`; 0 where there is no such queue."""
        channel = self.connection.channel()
        try:
            return int(channel.queue_declare(queue, passive=True).consumer_count)
        except NotFound:
            return 0
        finally:
            if channel.connection is not None and channel.is_open:
                channel.close()

    def confirm(self, settled: Callable[[int, bool, bool], None]) -> int:
        """A new channel in confirm mode; its number. `settled`: number of a message, all up to it?, was it taken?"""
        channel = self.connection.channel()
        channel.confirm_select()
        channel.events["basic_ack"].add(lambda tag, multiple: settled(tag, multiple, True))
        channel.events["basic_nack"].add(lambda tag, multiple: settled(tag, multiple, False))
        channel.events["basic_return"].add(self._on_return)
        return int(channel.channel_id)

    def on_returned(self, returned: Callable[[str], None]) -> None:
        """`returned` is told the correlation id of each mandatory message that no queue took."""
        self._returned = returned

    def _on_return(self, exception: Any, exchange: str, routing_key: str, message: Any) -> None:
        self._returned(message.properties.get("correlation_id", ""))

    def publish(self, data: bytes) -> None:
        """Write messages that nobody confirms."""
        self.send(data)

    def send(self, data: bytes | memoryview) -> None:
        """Write whole frames. Raises LinkLost."""
        try:
            with self._lock:
                self._sock.sendall(data)
        except (OSError, AttributeError, ValueError) as error:
            raise self._lost(f"cannot write: {error}") from error
        self.sent_at = time.monotonic()

    def send_parts(self, parts: list[Any]) -> None:
        """Write one message whose body is long, without joining its parts first. Raises LinkLost."""
        if self._tls:
            return self.send(b"".join(parts))
        try:
            with self._lock:
                for start in range(0, len(parts), PARTS_AT_ONCE):
                    left = parts[start : start + PARTS_AT_ONCE]
                    written, size = self._sock.sendmsg(left), sum(map(len, left))
                    if written < size:
                        self._sock.sendall(memoryview(b"".join(left))[written:])
        except (OSError, AttributeError, ValueError) as error:
            raise self._lost(f"cannot write: {error}") from error
        self.sent_at = time.monotonic()
        return None

    def drain(self, timeout: float | None = None) -> list[Delivery]:
        """What has been delivered; waits up to `timeout` s (None: TICK) for the first, and may return none.

        Raises LinkLost, and what py-amqp raises when the broker closes the channel or the connection.
        """
        deliveries = self._slow
        if deliveries:
            self._slow = []
            return deliveries
        self._parse(deliveries)
        if not deliveries and self._fill(timeout):
            self._parse(deliveries)
        if deliveries is self._slow:
            self._slow = []
        return deliveries

    @property
    def midway(self) -> bool:
        """Whether the beginning of a message has come, and not yet its end."""
        return self._position < len(self._data)

    def close(self) -> None:
        """Close the connection; unacknowledged messages go back to their queues. Safe to call again."""
        was_alive, self.alive = self.alive, False
        if was_alive:
            try:
                self._kombu.transport.close_connection(self.connection)
            except Exception as error:
                logger.debug("closing a connection: %s", error)
        self.discard()

    def discard(self) -> None:
        """Drop the connection without a word to the broker."""
        self.alive = False
        try:
            self.connection.collect()
        except Exception as error:
            logger.debug("dropping a connection: %s", error)

    def fileno(self) -> int:
        """For event loops: readable when `drain(0)` has something to do."""
        return int(self._sock.fileno())

    # Reading.

    def _fill(self, timeout: float | None) -> bool:
        """Read what is there into `_data`; False when nothing came within `timeout`."""
        sock = self._sock
        try:
            if (timeout is not None or self._tls) and not (self._tls and sock.pending()):
                poll = select.poll()
                poll.register(sock, select.POLLIN)
                if not poll.poll(1000 * (TICK if timeout is None else timeout)):
                    self._check_silence()
                    return False
            data = sock.recv(READ_BYTES)
        except (BlockingIOError, InterruptedError, ssl.SSLWantReadError, TimeoutError):
            self._check_silence()
            return False
        except (OSError, AttributeError, ValueError) as error:
            raise self._lost(f"cannot read: {error}") from error
        if not data:
            raise self._lost("the broker closed the connection")
        self.heard_at = time.monotonic()
        if self._position < len(self._data):
            data = self._data[self._position :] + data
            if len(data) < self._need:
                data = self._rest(data)
        self._data, self._position = data, 0
        return True

    def _rest(self, begun: bytes | bytearray) -> bytearray:
        """The whole of a message that has begun to arrive; a broker that stops in its middle is lost."""
        data, position, heard = bytearray(self._need), len(begun), time.monotonic()
        data[:position] = begun
        view = memoryview(data)
        while position < len(data):
            try:
                count = self._sock.recv_into(view[position:])
            except (BlockingIOError, InterruptedError, ssl.SSLWantReadError, TimeoutError):
                count = 0
                if time.monotonic() - heard < METHOD_TIMEOUT:
                    continue
            except (OSError, AttributeError, ValueError) as error:
                raise self._lost(f"cannot read: {error}") from error
            if not count:
                raise self._lost("the broker stopped in the middle of a message")
            position, heard = position + count, time.monotonic()
        return data

    def _check_silence(self) -> None:
        if self.heartbeat and time.monotonic() - self.heard_at > 2 * self.heartbeat:
            raise self._lost(f"no word from the broker for {time.monotonic() - self.heard_at:.0f} s")

    def _lost(self, why: str) -> LinkLost:
        self.alive = False
        return LinkLost(why)

    def _parse(self, out: list[Delivery]) -> None:
        """Take whole messages out of `_data`; any other frame is py-amqp's."""
        data, position = self._data, self._position
        end = len(data)
        self._need = 0
        while end - position >= OVERHEAD:
            kind, channel, size = FRAME.unpack_from(data, position)
            after = position + OVERHEAD + size
            if after > end:
                self._need = after - position
                break
            if kind == frames.METHOD and data[position + 7 : position + 11] == frames.DELIVER:
                done = self._message(data, position, after, end, out)
                if done == 0:
                    break
                if done > 0:
                    position = done
                    continue
            self._position = position = after
            self.connection.on_inbound_frame((kind, channel, bytes(data[after - size - 1 : after - 1])))
            data, position = self._data, self._position  # py-amqp may have read on
            end = len(data)
        self._position = position

    def _message(self, data: bytes | bytearray, start: int, header: int, end: int, out: list[Delivery]) -> int:
        """Append the message that begins at `start`, and has its header frame at `header`, to `out`.

        The position after it, 0 while it is not whole, -1 when its frames are not in one piece (py-amqp's then).
        """
        if end - header < OVERHEAD + 12:
            self._need = header - start + OVERHEAD + 12
            return 0
        kind, _, size = FRAME.unpack_from(data, header)
        if kind != frames.HEADER:
            return -1
        (length,) = _BODY_BYTES.unpack_from(data, header + 11)
        position: int = header + OVERHEAD + size
        pieces = -(-length // (self.frame_max - OVERHEAD))
        if position + length + pieces * OVERHEAD > end:
            self._need = position - start + length + pieces * OVERHEAD
            return 0
        if pieces == 1:
            kind, _, part = FRAME.unpack_from(data, position)
            if kind != frames.BODY or part != length:
                return -1
            body = bytes(data[position + 7 : position + 7 + length])
            position += OVERHEAD + length
        else:
            view, parts = memoryview(data), []
            while length > 0:
                if end - position < OVERHEAD:
                    return -1
                kind, _, part = FRAME.unpack_from(data, position)
                if kind != frames.BODY or position + OVERHEAD + part > end:
                    return -1
                parts.append(view[position + 7 : position + 7 + part])
                position += OVERHEAD + part
                length -= part
            body = b"".join(parts)
        tag_at = start + 12 + data[start + 11]
        tag, redelivered = _TAG.unpack_from(data, tag_at)
        consumer = data[start + 12 : tag_at].decode()
        out.append(Delivery(consumer, tag, redelivered, bytes(data[header + 19 : header + 7 + size]), body))
        return position

    def _read_frame(self, *_: Any) -> tuple[int, int, bytes]:
        """py-amqp's transport.read_frame: one frame, while it waits for the answer to a method."""
        deadline = time.monotonic() + METHOD_TIMEOUT
        while True:
            data, position = self._data, self._position
            if len(data) - position >= OVERHEAD:
                kind, channel, size = FRAME.unpack_from(data, position)
                after = position + OVERHEAD + size
                if after <= len(data):
                    self._position = after
                    return kind, channel, bytes(data[after - size - 1 : after - 1])
                self._need = after - position
            if not self._fill(None) and time.monotonic() > deadline:
                raise self._lost(f"the broker did not answer within {METHOD_TIMEOUT:.0f} s")

    def _cancelled(self, tag: str) -> None:
        raise self._lost(f"the broker cancelled consumer {tag}: its queue was deleted, or moved to another node")

    def _slowly(self, message: Any) -> None:
        """A delivery that py-amqp took in."""
        info = message.delivery_info
        self._slow.append(
            Delivery(
                info["consumer_tag"],
                info["delivery_tag"],
                bool(info["redelivered"]),
                message._serialize_properties(),
                bytes(message.body) if not isinstance(message.body, str) else message.body.encode(),
            )
        )


class _Tender:
    """One thread a process that sends heartbeats on every link: a method may compute for longer than a heartbeat."""

    def __init__(self) -> None:
        self._links: weakref.WeakSet[Link] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._pid = 0

    def tend(self, link: Link) -> None:
        """Send heartbeats on `link` for as long as it lives."""
        if not link.heartbeat:
            return
        with self._lock:
            self._links.add(link)
            if self._pid != os.getpid():  # a fork has no threads but its own
                self._pid = os.getpid()
                threading.Thread(target=self._run, name="heartbeats", daemon=True).start()

    def _run(self) -> None:
        while True:
            with self._lock:
                links = [link for link in self._links if link.alive]
            for link in links:
                if time.monotonic() - link.sent_at > link.heartbeat / 3:
                    try:
                        link.send(frames.HEARTBEAT_FRAME)
                    except LinkLost as error:
                        logger.debug("a heartbeat found its connection gone: %s", error)
            pause = min((link.heartbeat / 4 for link in links), default=5.0)
            links.clear()
            time.sleep(pause)


_tender = _Tender()
