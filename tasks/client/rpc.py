"""A caller's end of the fast path: one kept connection, direct reply-to, answers matched to their calls.

A thread has a client of its own, so a call involves no other thread: it writes the message and reads the answer itself.
Any thread may still wait for a handle: the one that waits reads for all. call_table.py has the states of calls; here
calls meet the connection.
"""

from __future__ import annotations

import select
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from celery.utils.log import get_logger

from tasks import brokers
from tasks.admin.registry import Directory
from tasks.amqp.frames import Delivery
from tasks.amqp.messages import DIRECT_REPLY
from tasks.amqp.stream import TICK
from tasks.brokers import GONE, Connection
from tasks.client import delay
from tasks.client.call_errors import CLOSED
from tasks.client.call_frames import CallFrames
from tasks.client.call_table import CallTable
from tasks.client.caretaker import caretaker
from tasks.client.delay import DelayQueues
from tasks.client.driver import Driver
from tasks.client.future import Handle
from tasks.client.late_sending import LateSending
from tasks.client.long_bodies import LongBodies
from tasks.client.reconnect import Reconnector
from tasks.client.unserved import UnservedCalls
from tasks.service import Spec
from tasks.topology import Topology
from warren.errors import BrokerError, ConfigurationError

logger = get_logger(__name__)

POLL_EVERY = 1.0  # s that calls are in flight before a check whether anyone serves them, and between such checks
STALE_AFTER = 1.0  # s after which a connection that was not read from is checked before it is used
EXPIRE_EVERY = 0.05  # s between looks for passed deadlines while the caretaker reads
REPLY_TAG = "replies"


class Client(Driver):
    """Calls services over one connection, which it makes when first used and again when it is lost.

    `patience`: s that a service may be without a worker, or the broker away or short of memory, before calls fail.

    Two locks: a thread holds `_reading` while it reads, connects or speaks with the broker, and `_writing`, alone or
    within it, while it writes calls.
    """

    longest_delay = delay.MOST
    poll_every = 0.05  # s between the looks of an event loop while calls are in flight

    def __init__(
        self, app: Any, topology: Topology, directory: Directory, patience: float, *, may_block: bool = True
    ) -> None:
        bodies = LongBodies(getattr(app, "warren_claims", None), may_block)  # an app of another make has no store
        super().__init__(app, CallTable(CallFrames(topology), patience), bodies, may_block)
        self._topology = topology
        self._connector = Reconnector(brokers.of(app), self._prepare, patience)
        self._delays = DelayQueues(topology, directory)
        self._reading, self._writing = threading.RLock(), threading.Lock()
        self._late = LateSending(self.table, self._connector, self._delays, self._writing, self._on_lost)
        self._unserved = UnservedCalls(self.table, topology, directory)
        self._arrived = deque[Delivery]()  # answers that were read and have not ended their calls yet
        self._read_at = self._looked_at = self._expired_at = 0.0

    # Sending.

    def _submit(self, spec: Spec, calls: Sequence[Handle]) -> None:
        if self._closed:
            raise BrokerError(CLOSED)
        now, link = time.monotonic(), self._connector.link
        if link is None or not link.alive or now - self._read_at > STALE_AFTER:
            self._refresh(now)
        one_way = not spec.response
        if calls and calls[0].extra is not None and calls[0].extra.delay:
            self.table.send_later(calls)  # their queue is declared first; where that may take a while, `tend` does it
            if self._may_block:
                with self._reading:
                    self._late.try_send_due(now)
            caretaker.watch(self)
            return
        if one_way and self._may_block and not self.table.confirming:
            with self._reading:
                self._late.open_confirms()
        # An event loop does not wait for a thread that may be stuck in a write.
        if self._writing.acquire(blocking=self._may_block):
            try:
                self._write(calls, one_way, now)
            finally:
                self._writing.release()
        else:
            self.table.send_later(calls)
        if one_way:
            caretaker.watch(self)

    def _write(self, calls: Sequence[Handle], one_way: bool, now: float) -> None:
        """Take the calls in, and write them if that is possible now. Holds the writing lock."""
        link = self._connector.link
        ready = link is not None and link.alive and not link.blocked and (not one_way or self.table.confirming)
        if link is not None and ready and (self._may_block or _writable(link)):
            try:
                link.send(self.table.send(calls, now))
            except GONE as error:  # the next read finds it dead, and these calls in the table
                logger.debug("calls were written to a connection that is gone: %s", error)
        else:
            self.table.send_later(calls)

    def _refresh(self, now: float) -> None:
        """Find out whether the broker has closed an idle connection, before it is used."""
        if not self._may_block:
            self.poll()
            return
        with self._reading:
            self._pump(now)

    # Waiting.

    def wait(self, handle: Handle, timeout: float | None = None) -> None:
        """Return when `handle` has ended; settle what else arrives meanwhile too."""
        limit = handle.deadline if timeout is None else min(handle.deadline, time.monotonic() + timeout)
        while not handle.ended:
            if self._reading.acquire(timeout=0.05):  # else another thread reads, for this one too
                try:
                    if not handle.ended:
                        self._pump(limit)
                finally:
                    self._reading.release()
            if not handle.ended and (now := time.monotonic()) >= limit:
                if handle.deadline > limit:
                    raise TimeoutError(f"{handle.spec.name} has not answered within {timeout:g} s")
                self.table.expire(now, self._blocked)

    def look_for(self, seconds: float) -> None:
        """Take in what arrives within `seconds`, until something does."""
        with self._reading:
            self._pump(time.monotonic() + seconds)

    def poll(self) -> None:
        """Take in what has arrived, without waiting; do nothing if another thread does that already."""
        if self._reading.acquire(blocking=False):
            try:
                link = self._connector.link
                if self._may_block:
                    self._pump(time.monotonic())
                elif link is not None and link.alive:
                    self._read(link, 0.0)
                elif link is not None:  # its descriptor would wake the event loop again and again
                    self._on_lost(link, "it broke while it was not read")
            finally:
                self._reading.release()

    def tend(self) -> None:
        """See Driver. A client of threads does nothing while another thread reads."""
        self.bodies.forget_all()
        # An event loop's polls take the lock for a moment: work that meets one waits, or nothing would do it.
        if self._reading.acquire(blocking=not self._may_block):
            try:
                now = time.monotonic()
                self._pump(now)
                if now - self._expired_at > EXPIRE_EVERY:
                    self._expired_at = now
                    self.expire()
            finally:
                self._reading.release()

    def expire(self) -> None:
        """Fail the calls that have passed their deadline."""
        self.table.expire(time.monotonic(), self._blocked)

    @property
    def needs_tending(self) -> bool:
        """Return whether `tend` has something to do, which may take a while."""
        if self.bodies.forgotten:
            return True
        if not self.table:
            return False
        now, link = time.monotonic(), self._connector.link
        return link is None or not link.alive or now - self._looked_at > POLL_EVERY or self.table.due(now)

    @property
    def _blocked(self) -> str:
        """Return why the broker takes no messages at the moment; "" while it does."""
        link = self._connector.link
        return "" if link is None else link.blocked or ""

    @property
    def link(self) -> Connection | None:
        """Return the present connection, whose descriptor an event loop may watch; None while there is none."""
        return self._connector.link

    # Reading. Holds the reading lock.

    def _pump(self, limit: float) -> None:
        """Read until something arrives, for at most TICK s and not beyond `limit`."""
        if self._closed:
            self.table.fail_all(BrokerError(CLOSED))
            return
        now = time.monotonic()
        link = self._connector.link
        if link is not None and not link.alive:
            self._on_lost(link, "it broke while calls were written to it")
            link = None
        if link is None and (link := self._connect(limit)) is None:
            return
        try:
            left = limit - now
            arrived = self._read(link, None if left > TICK else max(left, 0.0))
            if now - self._looked_at > POLL_EVERY:
                self._look_after(link, now)
            elif not arrived:
                self._late.send_due(now)
        except GONE as error:
            self._on_lost(link, error)

    def _read(self, link: Connection, timeout: float | None) -> bool:
        """Take in what arrives within `timeout` s; return whether anything did."""
        try:
            self._arrived.extend(() if self._arrived else link.drain(timeout))
        except GONE as error:
            self._on_lost(link, error)
            return False
        self._read_at = time.monotonic()
        found = bool(self._arrived)
        while self._arrived:  # a callback of one call may wait for another, and so read the rest
            delivery = self._arrived.popleft()
            if not self.table.delivered(delivery.properties, delivery.body):
                self.bodies.forget(delivery.body)  # too late: no call waits for it
        return found

    def _look_after(self, link: Connection, now: float) -> None:
        """Fail calls past their deadline, those of a broker that stays blocked, and those that nobody serves."""
        self._looked_at = now
        self.expire()
        if (blocked := self._connector.blocked_too_long()) is not None:
            self.table.fail_all(blocked, waiting=True)
        if link.blocked:
            return
        self._late.send_due(now)
        self._unserved.look(link, now, now - POLL_EVERY)

    # The connection.

    def _prepare(self, link: Connection) -> None:
        """Do what a new connection needs before calls may use it."""
        link.on_returned(self._unserved.returned)
        self._delays.clear()
        link.declare(self._topology.service)  # publishing to an exchange that is missing would end the connection
        link.consume(DIRECT_REPLY, REPLY_TAG, no_ack=True)
        with self._writing:
            self.table.opened(link.channel_id, link.frame_max)

    def _connect(self, limit: float) -> Connection | None:
        """Try once to connect and send what is due; return None when that failed."""
        try:
            link = self._connector.connect(limit)
            if link is not None:
                self._read_at = time.monotonic()
                self._late.send_due(self._read_at)
            return link
        except (BrokerError, ConfigurationError) as error:
            self.table.fail_all(error)
        except GONE as error:
            logger.debug("the new connection broke at once: %s", error)
        return None

    def _on_lost(self, link: Connection, why: BaseException | str) -> None:
        """Drop a broken connection: its calls are sent again as far as they allow it, and the others fail."""
        link.discard()  # frees a thread that is stuck in a write to it, with the lock
        with self._writing:
            if not self._connector.lost(link):
                return
            failed = self.table.lost()
        logger.warning("connection to the broker lost (%s); %d calls under way", why, len(self.table))
        for call, error in failed:
            self.table.fail(call, error)

    def drop(self) -> None:
        """See Driver."""
        self._closed = True
        if (link := self._connector.link) is not None:
            link.discard()

    def close(self) -> None:
        """Close the connection for good; calls under way fail."""
        self._closed = True
        self.table.fail_all(BrokerError(CLOSED))  # so that a thread which reads for one of them stops
        with self._reading:
            self.table.fail_all(BrokerError(CLOSED))
            self._connector.close()


def _writable(link: Connection) -> bool:
    """Return True where a write would not wait."""
    try:
        poll = select.poll()
        poll.register(link.fileno(), select.POLLOUT)
        return bool(poll.poll(0))
    except (OSError, ValueError):  # lost meanwhile
        return False
