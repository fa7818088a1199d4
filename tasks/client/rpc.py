"""A caller's end of the fast path: one kept connection, direct reply-to, answers matched to their calls.

A thread has a client of its own, so a call involves no other thread: it writes the message and reads the answer itself.
A handle may still be waited for from any thread: whoever waits reads for all.
"""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any

from celery.utils.log import get_logger

from tasks import brokers, codec
from tasks.admin.registry import Directory
from tasks.amqp import frames
from tasks.amqp.frames import Delivery
from tasks.amqp.messages import DIRECT_REPLY, FAILED, LOST, Ids
from tasks.amqp.stream import TICK
from tasks.brokers import GONE, Connection
from tasks.client.call_frames import CallFrames
from tasks.client.confirmer import confirmer
from tasks.client.confirms import Confirms
from tasks.client.failures import Failures
from tasks.client.future import Handle
from tasks.client.long_bodies import LongBodies
from tasks.client.pending import PendingCalls
from tasks.client.reconnect import Reconnector
from tasks.client.service_watch import ServiceWatch
from tasks.service import Spec
from tasks.topology import Topology
from warren.errors import (
    BrokerError,
    CallCancelled,
    CodecError,
    ConfigurationError,
    DeadlinePassed,
    RemoteFailure,
    WorkerLost,
)

logger = get_logger(__name__)

POLL_EVERY = 1.0  # s that calls are in flight before a check whether anyone serves them, and between such checks
ASK_AGAIN = 0.1  # s until a call that found no queue is sent again
STALE_AFTER = 1.0  # s after which a connection that was not read from is checked before it is used
AT_ONCE = 256  # calls in one write, of those that are sent again
REPLY_TAG = "replies"


class Client:
    """Calls services over one connection, which it makes when first used and again when it is lost.

    `patience`: s that a service may be without a worker, or the broker away or short of memory, before calls fail.
    `may_block`: without it `submit_packed` and `poll` return at once whatever broker and Redis do; `tend`, and what of
    `bodies` goes to Redis, may take longer and is for another thread, `tend` whenever `needs_tending`.

    Locks: `_reading` is held by who reads, connects or speaks with the broker; `_sending`, within it or alone, while
    calls are numbered and written, so that the numbers are in the order of the wire. Only the table has one of its own.
    """

    def __init__(
        self, app: Any, topology: Topology, directory: Directory, patience: float, *, may_block: bool = True
    ) -> None:
        self._app, self._topology, self._may_block = app, topology, may_block
        # An app of another make has no store.
        self.bodies = LongBodies(getattr(app, "warren_claims", None), may_block)
        self._calls = PendingCalls()
        self._connector = Reconnector(brokers.of(app), self._prepare, patience)
        self._watch = ServiceWatch(directory, patience)
        self._confirms: Confirms | None = None
        self._frames, self._failures = CallFrames(topology), Failures(self._calls)
        self._ids = Ids()
        self._reading, self._sending = threading.RLock(), threading.Lock()
        self._read_at = self._looked_at = 0.0

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
        link = self._connector.link
        if link is None or not link.alive or time.monotonic() - self._read_at > STALE_AFTER:
            self._refresh()
        self._send(calls, one_way=not spec.response)

    def _refresh(self) -> None:
        """Before a connection that was idle is used: has the broker closed it meanwhile?"""
        if not self._may_block:
            self.poll()
            return
        with self._reading:
            self._pump(time.monotonic())

    def _send(self, calls: Sequence[Handle], one_way: bool) -> None:
        """Make the calls pending and write them, or leave them to the next `_send_again`."""
        if one_way and self._confirms is None and self._may_block:
            with self._reading:
                self._open_confirms()
        with self._sending:
            link = self._connector.link
            ready = link is not None and link.alive and not link.blocked and (not one_way or self._confirms is not None)
            if link is not None and ready and (self._may_block or _writable(link)):
                try:
                    link.send(b"".join([self._enter(link, call) for call in calls]))
                except GONE as error:  # whoever reads next finds it dead, and these calls pending
                    logger.debug("calls were written to a connection that is gone: %s", error)
            else:
                for call in calls:
                    call.resend_at = 0.0
                    self._calls.add(call)
        if one_way:
            confirmer.watch(self)

    def _enter(self, link: Connection, call: Handle) -> bytes:
        """Enter the call under its id, and a one-way call among those to be confirmed too; its frames."""
        if not call.spec.response:
            assert self._confirms is not None  # see _send
            self._confirms.sent(call)
        call.resend_at = None
        self._calls.add(call)
        return self._frames.of(link, call, self._confirms)

    def _send_again(self, now: float) -> None:
        """Send what is out of the broker's hands. Holds the reading lock."""
        due = self._calls.unsent(now)
        if due and any(not call.spec.response for call in due):
            self._open_confirms()
        link = self._connector.link
        if link is None or link.blocked:
            return
        for start in range(0, len(due), AT_ONCE):
            with self._sending:
                # In the lock: another thread may have ended some of them since.
                left = [call for call in due[start : start + AT_ONCE] if self._calls.get(call.id) is call]
                link.send(b"".join([self._enter(link, call) for call in left]))

    def _open_confirms(self) -> None:
        """The channel of one-way calls, if there is a connection. Holds the reading lock."""
        link = self._connector.link
        if self._confirms is None and link is not None and link.alive and not link.blocked:
            try:
                self._confirms = Confirms(link, self._calls)
            except GONE as error:
                self._on_lost(link, error)

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
                self._expire(handle)

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
                self._pump(time.monotonic())
                self._expire_all()
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
    def link(self) -> Connection | None:
        """The present connection, whose descriptor an event loop may watch; None while there is none."""
        return self._connector.link

    def _pump(self, limit: float) -> None:
        """Read until something arrives, for at most TICK s and not beyond `limit`. Holds the reading lock."""
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
                self._send_again(now)
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
            self._settle(delivery)
        return bool(deliveries)

    def _settle(self, delivery: Delivery) -> None:
        raw = delivery.properties
        if raw[:2] == b"\x04\x00":  # a result: nothing but a correlation id
            call = self._calls.pop(raw[3:].decode("ascii", "replace"))
            if call is not None:
                self._watch.served.add(call.spec.name)
                call.settle(delivery.body)
            else:
                self.bodies.forget(delivery.body)  # too late: nobody will read it
            return
        try:
            properties = frames.read_properties(raw)
        except frames.Malformed as error:
            logger.error("an answer cannot be read, its call waits until its deadline: %s", error)
            return
        call = self._calls.get(properties.correlation_id)
        if call is None:
            self.bodies.forget(delivery.body)
            return
        if properties.type == LOST:
            self._retry(call, f"the worker that held {call.spec.name} died")
        elif self._calls.pop(call.id) is None:
            return
        elif properties.type == FAILED:
            call.settle(failure=_remote_failure(call.spec.name, delivery.body))
        else:
            call.settle(delivery.body)

    def _retry(self, call: Handle, why: str) -> None:
        """Send it again, or fail it when it has been sent often enough."""
        if call.retries >= call.spec.retries:
            again = "it may have run in part" if call.spec.retries == 0 else f"after {call.retries} more tries"
            self._failures.fail(call, WorkerLost(call.spec.name, f"{why}, {again}; see the workers' logs"))
        else:
            call.retries += 1
            call.resend_at = 0.0

    # Trouble.

    def _look_after(self, link: Connection, now: float) -> None:
        """Once in a while: does the broker take calls, and does anyone serve what is out?"""
        self._looked_at = now
        self._expire_all()
        blocked = self._connector.blocked_too_long()
        if blocked is not None:
            for call in self._calls.unsent(float("inf")):
                self._failures.fail(call, blocked)
        if link.blocked:
            return
        self._send_again(now)
        out: dict[str, list[Handle]] = {}
        for call in self._calls.all():
            if call.spec.response and now - call.sent_at > POLL_EVERY and call.resend_at is None:
                out.setdefault(call.spec.name, []).append(call)
        for name, calls in out.items():
            consumers = link.consumers(self._topology.service_queue(name).name)
            for call in calls:
                if error := self._watch.seen(call, consumers, now):
                    self._failures.fail(call, error)

    def _returned(self, call_id: str) -> None:
        """No queue of that name: the service has never been served, or its queue has gone with time."""
        call = self._calls.get(call_id)
        if call is None:
            return
        now = time.monotonic()
        call.resend_at = now + ASK_AGAIN
        if error := self._watch.seen(call, 0, now):
            self._failures.fail(call, error)

    def expire(self) -> None:
        """Fail what has passed its deadline."""
        self._expire_all()

    def _expire_all(self) -> None:
        now = time.monotonic()
        for call in self._calls.all():
            if call.deadline <= now:
                self._expire(call)

    def _expire(self, call: Handle) -> None:
        link, name = self._connector.link, call.spec.name
        remedy = "give it more, or more workers"
        if link is not None and link.blocked:
            remedy = f"the broker takes no messages at the moment: {link.blocked}"
        self._failures.fail(
            call, DeadlinePassed(name, f"{name} did not answer within {call.time_to_live:g} s; {remedy}")
        )

    def cancel(self, handle: Handle) -> bool:
        """See Handle.cancel."""
        if self._calls.pop(handle.id) is None:
            return False
        self._cancelled(handle)
        return True

    def _cancelled(self, call: Handle) -> None:
        call.settle(failure=CallCancelled(call.spec.name, f"the call of {call.spec.name} was cancelled"))
        try:
            self._app.control.revoke(call.id)
        except GONE as error:
            logger.debug("the workers were not told that a call was cancelled: %s", error)

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
        link.on_returned(self._returned)
        link.declare(self._topology.service)  # to publish to an exchange that is missing would end the connection
        link.consume(DIRECT_REPLY, REPLY_TAG, no_ack=True)
        with self._sending:
            self._confirms = None
            self._frames.forget()

    def _connect(self, limit: float) -> Connection | None:
        """Try to connect once; None when that failed. Holds the reading lock."""
        try:
            link = self._connector.connect(limit)
            if link is not None:
                self._read_at = time.monotonic()
                self._send_again(self._read_at)
            return link
        except (BrokerError, ConfigurationError) as error:
            self._failures.fail_all(error)
        except GONE as error:
            logger.debug("the new connection broke at once: %s", error)
        return None

    def _on_lost(self, link: Connection, why: BaseException | str) -> None:
        """The connection broke: answers on their way are lost, so calls are sent again as far as they allow it."""
        with self._sending:
            if not self._connector.lost(link):
                return
            self._confirms = None
        logger.warning("connection to the broker lost (%s); %d calls under way", why, len(self._calls))
        for call in self._calls.all():
            if not call.spec.response:
                call.resend_at = 0.0  # unconfirmed: it may arrive twice, it is not lost
            elif call.resend_at is None:
                self._retry(call, f"the connection to the broker broke while {call.spec.name} was under way")

    def close(self) -> None:
        """Close the connection; what is under way fails."""
        with self._reading:
            self._failures.fail_all(BrokerError("the Solver was closed"))
            self._connector.close()


def _writable(link: Connection) -> bool:
    """Whether something can be written without a wait."""
    poll = select.poll()
    poll.register(link.fileno(), select.POLLOUT)
    return bool(poll.poll(0))


def _remote_failure(service: str, body: bytes) -> Exception:
    try:
        kind, message, traceback = codec.decode(body)
    except (CodecError, ValueError) as error:
        return RemoteFailure(service, "unknown", f"its error could not be read: {error}")
    return RemoteFailure(service, kind, message, traceback)
