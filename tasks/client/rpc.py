"""A caller's end of the fast path: one kept connection, direct reply-to, answers matched to their calls.

A thread has a client of its own, so a call involves no other thread: it writes the message and reads the answer itself.
A handle may still be waited for from any thread: whoever waits reads for all.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Any

import redis
from celery.utils.log import get_logger

from tasks import brokers, codec
from tasks.admin.registry import Directory
from tasks.amqp import frames
from tasks.amqp.frames import Delivery
from tasks.amqp.messages import DIRECT_REPLY, FAILED, LOST, NO_LINKS, Envelope, Ids, expires_at
from tasks.amqp.stream import TICK
from tasks.brokers import GONE, Connection
from tasks.client.confirms import Casts
from tasks.client.future import Handle
from tasks.service import Spec
from tasks.topology import Topology
from warren.errors import (
    BrokerError,
    CallCancelled,
    CallError,
    CodecError,
    DeadlinePassed,
    NobodyServing,
    NoSuchService,
    RemoteFailure,
    WorkerLost,
    unknown_name,
)

logger = get_logger(__name__)

LOOK_EVERY = 1.0  # s that calls are out before it is looked whether anyone serves them, and between such looks
ASK_AGAIN = 0.1  # s until a call that found no queue is sent again
RECONNECT_AFTER = 0.2  # s between attempts to reach a broker that is away
STALE_AFTER = 1.0  # s of silence after which a link is looked at before it is used
REPLY_TAG = "replies"


class Client:
    """Calls services over one connection, which it makes when first used and again when it is lost.

    `patience`: s that a service may be without a worker, or the broker away, before calls fail.
    """

    def __init__(self, app: Any, topology: Topology, directory: Directory, patience: float) -> None:
        self._app, self._topology, self._directory, self._patience = app, topology, directory, patience
        self._link: Connection | None = None
        self._casts: Casts | None = None
        self._pending: dict[str, Handle] = {}
        self._envelopes: dict[tuple[str, float | None, int], Envelope] = {}
        self._served: set[str] = set()  # services that have been served
        self._ids = Ids()
        self._lock = threading.RLock()  # held by whoever reads, connects, or fails calls
        self._away_since: float | None = None
        self._looked_at = 0.0

    # Sending.

    def submit(self, spec: Spec, args: Any, kwargs: Any, time_to_live: float | None) -> Handle:
        """Send one call. Raises CodecError; every other trouble is the result's."""
        handle, message = self._prepare(spec, args, kwargs, time_to_live)
        if message:
            try:
                self._link.send(message)  # type: ignore[union-attr] # _prepare made it
            except GONE as error:
                self._on_lost(error)
        return handle

    def submit_all(self, spec: Spec, calls: Iterable[Any], time_to_live: float | None) -> list[Handle]:
        """Send many calls, each of its `args` tuple, in one write."""
        pairs = [self._prepare(spec, args, {}, time_to_live) for args in calls]
        try:
            if self._link is not None:
                self._link.send(b"".join([message for _, message in pairs]))
        except GONE as error:
            self._on_lost(error)
        return [handle for handle, _ in pairs]

    def _prepare(self, spec: Spec, args: Any, kwargs: Any, time_to_live: float | None) -> tuple[Handle, bytes]:
        """A pending call and the frames to send; none where there is no broker yet: the wait sends it then."""
        handle = Handle(self, spec, self._ids.new(), codec.encode((args, kwargs, NO_LINKS)), time_to_live)
        link = self._link
        if link is None or not link.alive or time.monotonic() - link.heard_at > STALE_AFTER:
            self._refresh()
        if self._link is None:
            handle.resend_at = 0.0
            self._pending[handle.id] = handle
            return handle, b""
        return handle, self._enter(handle)

    def _enter(self, handle: Handle) -> bytes:
        """Make the call known under what its end will be told by; its frames."""
        spec = handle.spec
        key = (spec.name, handle.time_to_live, handle.retries)
        envelope = self._envelopes.get(key) or self._envelope(spec, handle)
        if not spec.response:
            assert self._casts is not None  # the envelope made it
            self._casts.sent(handle)
        self._pending[handle.id] = handle
        handle.resend_at = None
        left = (
            min(handle.deadline - time.monotonic(), handle.time_to_live or 0.0)
            if handle.retries
            else handle.time_to_live
        )
        return envelope.write(handle.id, expires_at(left or 0.0) if envelope.expires else b"", handle.args_body)

    def _envelope(self, spec: Spec, handle: Handle) -> Envelope:
        assert self._link is not None
        if len(self._envelopes) > 1000:  # a caller that computes each deadline anew
            self._envelopes.clear()
        if not spec.response and self._casts is None:
            self._casts = Casts(self._link, self._pending)
        channel = self._link.channel_id if self._casts is None or spec.response else self._casts.channel_id
        envelope = self._envelopes[(spec.name, handle.time_to_live, handle.retries)] = Envelope(
            channel,
            self._link.frame_max,
            self._topology.service.name,
            spec.name,
            reply_to=DIRECT_REPLY if spec.response else "",
            time_to_live=handle.time_to_live,
            retries=handle.retries,
            persistent=not spec.response,
        )
        return envelope

    # Waiting.

    def wait(self, handle: Handle, timeout: float | None = None) -> None:
        """Return when `handle` has ended; what else arrives meanwhile is settled too."""
        limit = handle.deadline if timeout is None else min(handle.deadline, time.monotonic() + timeout)
        while not handle._arrived:
            if not self._lock.acquire(timeout=0.05):
                continue  # another thread reads, for this one too
            try:
                if not handle._arrived:
                    self._pump(limit)
            finally:
                self._lock.release()
            if not handle._arrived and time.monotonic() >= limit:
                if handle.deadline > limit:
                    raise TimeoutError(f"{handle.spec.name} has not answered within {timeout:g} s")
                self._expire(handle)

    def look_for(self, seconds: float) -> None:
        """Take in what arrives within `seconds`, until something does."""
        with self._lock:
            self._pump(time.monotonic() + seconds)

    def expire(self) -> None:
        """Fail what has passed its deadline."""
        with self._lock:
            now = time.monotonic()
            for handle in [handle for handle in self._pending.values() if handle.deadline <= now]:
                self._expire(handle)

    @property
    def unconfirmed(self) -> int:
        """Calls without an answer that the broker does not have yet."""
        return sum(not handle.spec.response for handle in self._pending.values())

    @property
    def under_way(self) -> int:
        """Calls that have not ended."""
        return len(self._pending)

    def fileno(self) -> int | None:
        """What an event loop may watch; None while there is no connection."""
        return None if self._link is None else self._link.fileno()

    def look(self) -> None:
        """Take in what has arrived, without waiting."""
        if self._lock.acquire(blocking=False):
            try:
                self._pump(0.0)
            finally:
                self._lock.release()

    def _pump(self, limit: float) -> None:
        """Read until something arrives, for at most TICK s and not beyond `limit`. Holds the lock."""
        now = time.monotonic()
        if self._link is None and not self._connect(limit):
            return
        try:
            left = limit - now
            deliveries = self._link.drain(None if left > TICK else max(left, 0.0))  # type: ignore[union-attr]
            for delivery in deliveries:
                self._settle(delivery)
            if now - self._looked_at > LOOK_EVERY:
                self._look_after(now)
            elif not deliveries:
                self._send_again(now)
        except GONE as error:
            self._on_lost(error)

    def _settle(self, delivery: Delivery) -> None:
        raw = delivery.properties
        if raw[:2] == b"\x04\x00":  # a result: nothing but a correlation id
            handle = self._pending.pop(raw[3:].decode("ascii", "replace"), None)
            if handle is not None:
                self._served.add(handle.spec.name)
                handle.settle(delivery.body)
            return
        properties = frames.read_properties(raw)
        handle = self._pending.pop(properties.correlation_id, None)
        if handle is None:
            return
        if properties.type == LOST:
            self._retry(handle, f"the worker that held {handle.spec.name} died")
        elif properties.type == FAILED:
            handle.settle(failure=_remote_failure(handle.spec.name, delivery.body))
        else:
            handle.settle(delivery.body)

    def _retry(self, handle: Handle, why: str) -> None:
        """Send it again, or fail it when it has been sent often enough."""
        if handle.retries >= handle.spec.retries:
            again = "it may have run in part" if handle.spec.retries == 0 else f"after {handle.retries} more tries"
            handle.settle(failure=WorkerLost(handle.spec.name, f"{why}, {again}; look at the workers' logs"))
        else:
            handle.retries += 1
            handle.resend_at = 0.0
            self._pending[handle.id] = handle

    def _send_again(self, now: float) -> None:
        """Send what is out of the broker's hands."""
        if self._link is None:
            return
        due = [handle for handle in self._pending.values() if handle.resend_at is not None and handle.resend_at <= now]
        for start in range(0, len(due), 256):
            self._link.send(b"".join([self._enter(handle) for handle in due[start : start + 256]]))

    # Trouble.

    def _look_after(self, now: float) -> None:
        """Once in a while: does anyone serve what is out?"""
        self._looked_at = now
        self._send_again(now)
        old: dict[str, list[Handle]] = {}
        for handle in list(self._pending.values()):
            if now > handle.deadline:
                self._expire(handle)
            elif handle.spec.response and now - handle.sent_at > LOOK_EVERY and handle.resend_at is None:
                old.setdefault(handle.spec.name, []).append(handle)
        for name, handles in old.items():
            consumers = self._consumers(name)
            if consumers:
                self._served.add(name)
            for handle in handles:
                if consumers:
                    handle.unserved_since = None
                    continue
                handle.unserved_since = handle.unserved_since or now
                if now - handle.unserved_since >= self._patience:
                    self._fail_unserved(handle, now)

    def _consumers(self, name: str) -> int:
        assert self._link is not None
        return self._link.consumers(self._topology.service_queue(name).name)

    def _fail_unserved(self, handle: Handle, now: float) -> None:
        self._pending.pop(handle.id, None)
        name, waited = handle.spec.name, now - (handle.unserved_since or now)
        if name in self._served:
            handle.settle(
                failure=WorkerLost(
                    name, f"the last worker that served {name} is gone, and none came for {waited:.1f} s"
                )
            )
        else:
            handle.settle(failure=unserved(self._directory, name, waited))

    def _expire(self, handle: Handle) -> None:
        self._pending.pop(handle.id, None)
        if not handle._arrived:
            waited = f"{handle.time_to_live:g} s"
            handle.settle(
                failure=DeadlinePassed(
                    handle.spec.name,
                    f"{handle.spec.name} did not answer within {waited}; give it more, or more workers",
                )
            )

    def cancel(self, handle: Handle) -> bool:
        """See Handle.cancel."""
        with self._lock:
            if handle._arrived:
                return False
            self.forget(handle)
        return True

    def forget(self, handle: Handle) -> None:
        """Give a call up, and have the workers told."""
        self._pending.pop(handle.id, None)
        handle.settle(failure=CallCancelled(handle.spec.name, f"the call of {handle.spec.name} was cancelled"))
        self._app.control.revoke(handle.id)

    def _returned(self, correlation_id: str) -> None:
        """No queue of that name: the service has never been served, or its queue has gone with time."""
        handle = self._pending.get(correlation_id)
        if handle is None:
            return
        now = time.monotonic()
        handle.unserved_since = handle.unserved_since or now
        handle.resend_at = now + ASK_AGAIN
        if now - handle.unserved_since >= self._patience:
            self._fail_unserved(handle, now)

    # The connection.

    def _refresh(self) -> None:
        """Before a link that was idle is used: has the broker closed it meanwhile?"""
        with self._lock:
            if self._link is not None and self._link.alive:
                try:
                    for delivery in self._link.drain(0.0):
                        self._settle(delivery)
                    self._link.heard_at = time.monotonic()
                    return
                except GONE as error:
                    self._on_lost(error)
            self._connect(time.monotonic())

    def _connect(self, limit: float) -> bool:
        """Try to connect once; False, after a pause within `limit`, when that failed."""
        try:
            link = brokers.of(self._app).connect()
            link.on_returned(self._returned)
            link.consume(DIRECT_REPLY, REPLY_TAG, no_ack=True)
        except GONE as error:
            now = time.monotonic()
            self._away_since = self._away_since or now
            if now - self._away_since > self._patience:
                self._fail_all(BrokerError(f"the broker has been away for {now - self._away_since:.1f} s: {error}"))
            time.sleep(max(0.0, min(RECONNECT_AFTER, limit - now)))
            return False
        self._link, self._away_since, self._casts = link, None, None
        self._envelopes.clear()
        self._send_again(time.monotonic())
        return True

    def _on_lost(self, error: BaseException) -> None:
        """The connection broke: answers on their way are lost, so calls are sent again as far as they allow it."""
        with self._lock:
            if self._link is None:
                return
            logger.warning("connection to the broker lost (%s); %d calls under way", error, len(self._pending))
            self._link.discard()
            self._link = None
            for handle in list(self._pending.values()):
                if not handle.spec.response:
                    handle.resend_at = 0.0  # unconfirmed: it may arrive twice, it is not lost
                elif handle.resend_at is None:
                    self._pending.pop(handle.id, None)
                    self._retry(handle, f"the connection to the broker broke while {handle.spec.name} was under way")

    def _fail_all(self, error: Exception) -> None:
        pending, self._pending = list(self._pending.values()), {}
        for handle in pending:
            handle.settle(failure=error)

    def close(self) -> None:
        """Close the connection; what is under way fails."""
        with self._lock:
            self._fail_all(BrokerError("the Solver was closed"))
            if self._link is not None:
                self._link.close()
                self._link = None


def unserved(directory: Directory, name: str, waited: float) -> CallError:
    """The error for a service that no worker serves: does the run have one of that name at all?"""
    try:
        known = directory.known()
    except redis.RedisError:
        known = {}
    if name in known or not known:
        return NobodyServing(
            name, f"nobody has served {name} for {waited:.1f} s; start a worker (python -m workers.services lists them)"
        )
    return NoSuchService(name, unknown_name("service", name, known, "(python -m workers.services lists them)"))


def _remote_failure(service: str, body: bytes) -> Exception:
    try:
        kind, message, traceback = codec.decode(body)
    except (CodecError, ValueError) as error:
        return RemoteFailure(service, "unknown", f"its error could not be read: {error}")
    return RemoteFailure(service, kind, message, traceback)
