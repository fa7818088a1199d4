"""How calls end: by an answer, a deadline, a cancellation, or since nobody serves them; or they are sent once more."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from celery.utils.log import get_logger

from tasks import codec
from tasks.amqp import frames
from tasks.amqp.frames import Delivery
from tasks.amqp.messages import FAILED, LOST
from tasks.brokers import GONE
from tasks.client.failures import Failures
from tasks.client.future import Handle
from tasks.client.long_bodies import LongBodies
from tasks.client.pending import PendingCalls
from tasks.client.service_watch import ServiceWatch
from warren.errors import CallCancelled, CodecError, DeadlinePassed, RemoteFailure, WorkerLost

logger = get_logger(__name__)

ASK_AGAIN = 0.1  # s until a call that found no queue is sent again


class Endings:
    """Ends the calls of one client's table, and says by `Handle.resend_at` which are to be sent again.

    Needs no lock: who takes a call out of the table is the one who ends it.
    """

    def __init__(
        self, app: Any, calls: PendingCalls, failures: Failures, watch: ServiceWatch, bodies: LongBodies
    ) -> None:
        self._app, self._calls, self._failures, self._watch, self._bodies = app, calls, failures, watch, bodies

    # What the broker brings.

    def answered(self, delivery: Delivery) -> None:
        """What a worker sent: a result, a failure, or that the worker before it died."""
        raw = delivery.properties
        if raw[:2] == b"\x04\x00":  # a result: nothing but a correlation id
            call = self._calls.pop(raw[3:].decode("ascii", "replace"))
            if call is not None:
                self._watch.served.add(call.spec.name)
                call.settle(delivery.body)
            else:
                self._bodies.forget(delivery.body)  # too late: nobody will read it
            return
        try:
            properties = frames.read_properties(raw)
        except frames.Malformed as error:
            logger.error("an answer cannot be read, its call waits until its deadline: %s", error)
            return
        call = self._calls.get(properties.correlation_id)
        if call is None:
            self._bodies.forget(delivery.body)
            return
        if properties.type == LOST:
            self.retry(call, f"the worker that held {call.spec.name} died")
        elif self._calls.pop(call.id) is None:
            return
        elif properties.type == FAILED:
            call.settle(failure=_remote_failure(call.spec.name, delivery.body))
        else:
            call.settle(delivery.body)

    def returned(self, call_id: str) -> None:
        """No queue of that name: the service has never been served, or its queue has gone with time."""
        call = self._calls.get(call_id)
        if call is None:
            return
        now = time.monotonic()
        call.resend_at = now + ASK_AGAIN
        if error := self._watch.seen(call, 0, now):
            self._failures.fail(call, error)

    def connection_lost(self) -> None:
        """Answers on their way are lost, so calls are sent again as far as they allow it."""
        for call in self._calls.all():
            if not call.spec.response:
                call.resend_at = 0.0  # unconfirmed: it may arrive twice, it is not lost
            elif call.resend_at is None:
                self.retry(call, f"the connection to the broker broke while {call.spec.name} was under way")

    def retry(self, call: Handle, why: str) -> None:
        """Send it again, or fail it when it has been sent often enough."""
        if call.retries >= call.spec.retries:
            again = "it may have run in part" if call.spec.retries == 0 else f"after {call.retries} more tries"
            self._failures.fail(call, WorkerLost(call.spec.name, f"{why}, {again}; see the workers' logs"))
        else:
            call.retries += 1
            call.resend_at = 0.0

    # What nobody answers.

    def check_served(self, now: float, sent_before: float, consumers: Callable[[str], int]) -> None:
        """Fail calls that are out since then and whose service nobody serves; `consumers` counts those of a service."""
        out: dict[str, list[Handle]] = {}
        for call in self._calls.all():
            if call.spec.response and call.sent_at < sent_before and call.resend_at is None:
                out.setdefault(call.spec.name, []).append(call)
        for name, calls in out.items():
            serving = consumers(name)
            for call in calls:
                if error := self._watch.seen(call, serving, now):
                    self._failures.fail(call, error)

    def expire_all(self, blocked: str) -> None:
        """Fail what has passed its deadline. `blocked`: why the broker takes no messages at the moment, or ""."""
        now = time.monotonic()
        for call in self._calls.all():
            if call.deadline <= now:
                self.expire(call, blocked)

    def expire(self, call: Handle, blocked: str) -> None:
        """Its deadline has passed."""
        name = call.spec.name
        remedy = (
            f"the broker takes no messages at the moment: {blocked}" if blocked else "give it more, or more workers"
        )
        self._failures.fail(
            call, DeadlinePassed(name, f"{name} did not answer within {call.time_to_live:g} s; {remedy}")
        )

    def cancel(self, call: Handle) -> bool:
        """See Handle.cancel."""
        if self._calls.pop(call.id) is None:
            return False
        call.settle(failure=CallCancelled(call.spec.name, f"the call of {call.spec.name} was cancelled"))
        try:
            self._app.control.revoke(call.id)
        except GONE as error:
            logger.debug("the workers were not told that a call was cancelled: %s", error)
        return True


def _remote_failure(service: str, body: bytes) -> Exception:
    try:
        kind, message, traceback = codec.decode(body)
    except (CodecError, ValueError) as error:
        return RemoteFailure(service, "unknown", f"its error could not be read: {error}")
    return RemoteFailure(service, kind, message, traceback)
