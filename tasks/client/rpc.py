"""A caller's end of the fast path: one kept connection, direct reply-to, answers matched to their calls.

A thread has a client of its own, so a call involves no other thread: it writes the message and reads the answer itself.
A handle may still be waited for from any thread: whoever waits reads for all.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any

from celery.utils.log import get_logger

from tasks import brokers
from tasks.admin.registry import Directory
from tasks.amqp.messages import DIRECT_REPLY, Ids
from tasks.amqp.stream import TICK
from tasks.brokers import GONE, Connection
from tasks.client.caretaker import caretaker
from tasks.client.endings import Endings
from tasks.client.failures import Failures
from tasks.client.future import Handle
from tasks.client.long_bodies import LongBodies
from tasks.client.outgoing import Outgoing
from tasks.client.pending import PendingCalls
from tasks.client.reconnect import Reconnector
from tasks.client.service_watch import ServiceWatch
from tasks.service import Spec
from tasks.topology import Topology
from warren.errors import (
    BrokerError,
    ConfigurationError,
)

logger = get_logger(__name__)

POLL_EVERY = 1.0  # s that calls are in flight before a check whether anyone serves them, and between such checks
STALE_AFTER = 1.0  # s after which a connection that was not read from is checked before it is used
EXPIRE_EVERY = 0.05  # s between looks for passed deadlines while the caretaker reads
REPLY_TAG = "replies"
CLOSED = "the Solver was closed; make another"


class Client:
    """Calls services over one connection, which it makes when first used and again when it is lost.

    `patience`: s that a service may be without a worker, or the broker away or short of memory, before calls fail.
    `may_block`: without it `submit_packed` and `poll` return at once whatever broker and Redis do; `tend`, and what of
    `bodies` goes to Redis, may take longer and is for another thread, `tend` whenever `needs_tending`.

    `_reading` is held by who reads, connects or speaks with the broker. Outgoing has a lock for who writes, which is
    taken within it or alone; so has the table of calls.
    """

    def __init__(
        self, app: Any, topology: Topology, directory: Directory, patience: float, *, may_block: bool = True
    ) -> None:
        self._app, self._topology, self._may_block = app, topology, may_block
        # An app of another make has no store.
        self.bodies = LongBodies(getattr(app, "warren_claims", None), may_block)
        self._calls = PendingCalls()
        self._connector = Reconnector(brokers.of(app), self._prepare, patience)
        self._outgoing = Outgoing(topology, self._connector, self._calls, may_block, self._on_lost)
        self._failures = Failures(self._calls)
        self._endings = Endings(app, self._calls, self._failures, ServiceWatch(directory, patience), self.bodies)
        self._ids = Ids()
        self._reading = threading.RLock()
        self._read_at = self._looked_at = self._expired_at = 0.0
        self._attended: set[str] = set()  # ids of calls with a callback
        self._closed = False

    # Sending.

    def submit(self, spec: Spec, args: Any, kwargs: Any, time_to_live: float | None) -> Handle:
        """Send one call. Raises CodecError; every other trouble is the result's."""
        return self.submit_packed(spec, self.bodies.store(self.bodies.pack(args, kwargs)), time_to_live)

    def submit_packed(self, spec: Spec, body: bytes, time_to_live: float | None) -> Handle:
        """Send one call, whose body is what `bodies.store` returned. Raises nothing: every trouble is the result's."""
        call = Handle(self, spec, self._ids.new(), body, time_to_live)
        self._submit(spec, (call,))
        return call

    def submit_all(self, spec: Spec, calls: Iterable[Any], time_to_live: float | None) -> list[Handle]:
        """Send many calls, each of its `args` tuple, in one write."""
        bodies = [self.bodies.store(self.bodies.pack(args, {})) for args in calls]
        made = [Handle(self, spec, self._ids.new(), body, time_to_live) for body in bodies]
        self._submit(spec, made)
        return made

    def _submit(self, spec: Spec, calls: Sequence[Handle]) -> None:
        if self._closed:
            raise BrokerError(CLOSED)
        link = self._connector.link
        if link is None or not link.alive or time.monotonic() - self._read_at > STALE_AFTER:
            self._refresh()
        one_way = not spec.response
        if one_way and self._may_block and not self._outgoing.confirms:
            with self._reading:
                self._outgoing.open_confirms()
        self._outgoing.send(calls, one_way)
        if one_way:
            caretaker.watch(self)

    def _refresh(self) -> None:
        """Before a connection that was idle is used: has the broker closed it meanwhile?"""
        if not self._may_block:
            self.poll()
            return
        with self._reading:
            self._pump(time.monotonic())

    # Waiting.

    def wait(self, handle: Handle, timeout: float | None = None) -> None:
        """Return when `handle` has ended; what else arrives meanwhile is settled too."""
        limit = handle.deadline if timeout is None else min(handle.deadline, time.monotonic() + timeout)
        while not handle.ended:
            if not self._reading.acquire(timeout=0.05):
                continue  # another thread reads, for this one too
            try:
                if not handle.ended:
                    self._pump(limit)
            finally:
                self._reading.release()
            if not handle.ended and time.monotonic() >= limit:
                if handle.deadline > limit:
                    raise TimeoutError(f"{handle.spec.name} has not answered within {timeout:g} s")
                self._endings.expire(handle, self._blocked)

    def look_for(self, seconds: float) -> None:
        """Take in what arrives within `seconds`, until something does."""
        with self._reading:
            self._pump(time.monotonic() + seconds)

    def poll(self) -> None:
        """Take in what has arrived, without waiting; nothing when another thread does that already."""
        if self._reading.acquire(blocking=False):
            try:
                link = self._connector.link
                if self._may_block:
                    self._pump(time.monotonic())
                elif link is not None and link.alive:
                    self._read(link, 0.0)
            finally:
                self._reading.release()

    def tend(self) -> None:
        """Take in what has arrived, send what is due, connect where that is needed; not if another thread does."""
        self.bodies.forget_all()
        if self._reading.acquire(blocking=False):
            try:
                now = time.monotonic()
                self._pump(now)
                if now - self._expired_at > EXPIRE_EVERY:
                    self._expired_at = now
                    self.expire()
            finally:
                self._reading.release()

    @property
    def needs_tending(self) -> bool:
        """Whether there is something to do that may take a while."""
        now, link = time.monotonic(), self._connector.link
        if self.bodies.forgotten:
            return True
        if not self._calls:
            return False
        return link is None or not link.alive or now - self._looked_at > POLL_EVERY or bool(self._calls.unsent(now))

    @property
    def unconfirmed(self) -> int:
        """One-way calls that the broker does not have yet."""
        return self._calls.unconfirmed

    @property
    def under_way(self) -> int:
        """Calls that have not ended."""
        return len(self._calls)

    @property
    def attended(self) -> int:
        """Number of calls that have a callback and have not ended."""
        return len(self._attended)

    def attend(self, handle: Handle) -> None:
        """Have the answer of `handle` taken in though nobody waits for it."""
        self._attended.add(handle.id)
        handle.when_ended(lambda ended: self._attended.discard(ended.id))
        caretaker.watch(self)

    @property
    def _blocked(self) -> str:
        """Why the broker takes no messages at the moment; "" while it does."""
        link = self._connector.link
        return "" if link is None else link.blocked or ""

    @property
    def link(self) -> Connection | None:
        """The present connection, whose descriptor an event loop may watch; None while there is none."""
        return self._connector.link

    def _pump(self, limit: float) -> None:
        """Read until something arrives, for at most TICK s and not beyond `limit`. Holds the reading lock."""
        if self._closed:
            self._failures.fail_all(BrokerError(CLOSED))
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
                self._outgoing.send_again(now)
        except GONE as error:
            self._on_lost(link, error)

    def _read(self, link: Connection, timeout: float | None) -> bool:
        """Whether anything arrived within `timeout`."""
        try:
            deliveries = link.drain(timeout)
        except GONE as error:
            self._on_lost(link, error)
            return False
        self._read_at = time.monotonic()
        for delivery in deliveries:
            self._endings.answered(delivery)
        return bool(deliveries)

    # Trouble.

    def _look_after(self, link: Connection, now: float) -> None:
        """Once in a while: does the broker take calls, and does anyone serve what is out?"""
        self._looked_at = now
        self.expire()
        blocked = self._connector.blocked_too_long()
        if blocked is not None:
            for call in self._calls.unsent(float("inf")):
                self._failures.fail(call, blocked)
        if link.blocked:
            return
        self._outgoing.send_again(now)
        self._endings.check_served(
            now, now - POLL_EVERY, lambda name: link.consumers(self._topology.service_queue(name).name)
        )

    def expire(self) -> None:
        """Fail what has passed its deadline."""
        self._endings.expire_all(self._blocked)

    def cancel(self, handle: Handle) -> bool:
        """See Handle.cancel."""
        return self._endings.cancel(handle)

    @property
    def failed(self) -> int:
        """One-way calls that were lost, ever."""
        return self._failures.lost

    def take_failures(self) -> list[Exception]:
        """Why one-way calls were lost since this was asked last, in order."""
        return self._failures.take()

    # The connection.

    def _prepare(self, link: Connection) -> None:
        """What a new connection needs before calls may use it."""
        link.on_returned(self._endings.returned)
        link.declare(self._topology.service)  # to publish to an exchange that is missing would end the connection
        link.consume(DIRECT_REPLY, REPLY_TAG, no_ack=True)
        self._outgoing.begin()

    def _connect(self, limit: float) -> Connection | None:
        """Try to connect once; None when that failed. Holds the reading lock."""
        try:
            link = self._connector.connect(limit)
            if link is not None:
                self._read_at = time.monotonic()
                self._outgoing.send_again(self._read_at)
            return link
        except (BrokerError, ConfigurationError) as error:
            self._failures.fail_all(error)
        except GONE as error:
            logger.debug("the new connection broke at once: %s", error)
        return None

    def _on_lost(self, link: Connection, why: BaseException | str) -> None:
        """The connection broke: answers on their way are lost, so calls are sent again as far as they allow it."""
        if not self._outgoing.lost(link):
            return
        logger.warning("connection to the broker lost (%s); %d calls under way", why, len(self._calls))
        self._endings.connection_lost()

    def close(self) -> None:
        """Close the connection for good; what is under way fails."""
        self._closed = True
        self._failures.fail_all(BrokerError(CLOSED))  # so that who reads for one of them stops
        with self._reading:
            self._failures.fail_all(BrokerError(CLOSED))
            self._connector.close()
