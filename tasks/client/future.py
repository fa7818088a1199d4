"""A call under way, as its caller holds it: a future."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
import time
from collections.abc import Callable, Generator
from enum import Enum
from typing import Any, Protocol

from celery.utils.log import get_logger

from tasks import codec
from tasks.client.outgoing import Outgoing
from tasks.codec import claim_check, claim_stub
from tasks.service import Spec
from warren.errors import CallCancelled

logger = get_logger(__name__)

_fetching = threading.Lock()  # held while a long result is fetched: several threads may ask for it
_adding = threading.Lock()  # held while a callback is added, or all are taken


def _after_fork() -> None:
    """Free the locks in a child, which has none of the threads that may hold them."""
    global _fetching, _adding
    _fetching, _adding = threading.Lock(), threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


class State(Enum):
    """The state of a call."""

    WAITING = "waiting"  # not sent: that is due at `Handle.due`
    SENT = "sent"  # written, and its answer awaited
    UNCONFIRMED = "unconfirmed"  # one-way, written, and not confirmed by the broker
    ENDED = "ended"  # with a result or an error


WAITING, ENDED = State.WAITING, State.ENDED  # looked up for each call


class Bodies(Protocol):
    """The part of a client's bodies that its handles use."""

    def forget(self, body: bytes) -> None:
        """Drop what is stored elsewhere for `body`, which is not sent again."""


class Waiter(Protocol):
    """The part of a client that its handles use."""

    @property
    def bodies(self) -> Bodies:
        """Return the bodies of its calls."""

    def poll(self) -> None:
        """Take in what has arrived, without waiting."""

    def wait(self, handle: Handle, timeout: float | None = None) -> None:
        """Return when `handle` has ended; raise TimeoutError after `timeout` s."""

    def attend(self, handle: Handle) -> None:
        """Take in the answer of `handle` even if nobody waits for it."""

    def cancel(self, handle: Handle) -> bool:
        """Give a call up; False when it had ended."""


class Handle:
    """A call under way. Any thread may use it.

    `result()` waits. For several at once: `add_done_callback`, or `future()` with what `concurrent.futures` offers
    (`wait`, `as_completed`). In an event loop, `await handle`.
    """

    __slots__ = (
        "_body",
        "_callbacks",
        "_client",
        "args_body",
        "deadline",
        "due",
        "extra",
        "failure",
        "id",
        "number",
        "retries",
        "sent_at",
        "spec",
        "state",
        "time_to_live",
        "unserved_since",
    )

    def __init__(
        self,
        client: Waiter,
        spec: Spec,
        call_id: str,
        body: bytes,
        time_to_live: float | None,
        extra: Outgoing | None = None,
    ) -> None:
        self._client, self.spec, self.id, self.args_body = client, spec, call_id, body
        self.time_to_live, self.sent_at = time_to_live, time.monotonic()
        self.deadline = float("inf") if time_to_live is None else self.sent_at + time_to_live
        self.extra = extra  # further parts of its message
        self.retries = 0
        # The table of its client writes these.
        self.state = WAITING
        self.due = 0.0  # when it is to be sent, on the monotonic clock
        self.number = 0  # of its message, among the one-way calls of a connection
        self.unserved_since: float | None = None
        self._callbacks: list[Callable[[Handle], object]] | None = None
        self._body: bytes | memoryview | None = None
        self.failure: Exception | None = None  # its error, once it has ended with one

    @property
    def ended(self) -> bool:
        """Return True once there is a result or an error."""
        return self.state is ENDED

    def done(self) -> bool:
        """Return whether there is a result or an error; takes in what has arrived."""
        if not self.ended:
            self._client.poll()
        return self.ended

    def result(self, timeout: float | None = None) -> Any:
        """Return what the service returned, or raise the call's error: a CallError, a BrokerError.

        Raises TimeoutError after `timeout` s: the call goes on, ask again.
        """
        if not self.ended:
            self._client.wait(self, timeout)
        return self.outcome()

    def exception(self, timeout: float | None = None) -> Exception | None:
        """Return the error that `result` would raise, or None. Raises TimeoutError after `timeout` s."""
        if not self.ended:
            self._client.wait(self, timeout)
        try:
            self.outcome()
        except Exception as error:
            return error
        return None

    def cancel(self) -> bool:
        """Give the call up: nobody waits for it, and it is not run unless it has begun. False when it had ended."""
        return self._client.cancel(self)

    def cancelled(self) -> bool:
        """Return whether the call was given up by `cancel`."""
        return isinstance(self.failure, CallCancelled)

    def add_done_callback(self, function: Callable[[Handle], object]) -> None:
        """Call `function` with this handle once the call has ended, or at once when it has.

        Nobody has to wait for the call: a thread of the process takes its answer in. That thread calls `function`,
        which should be short. Its errors are logged.
        """
        self.when_ended(function)
        if not self.ended:
            self._client.attend(self)

    def future(self) -> concurrent.futures.Future[Any]:
        """Return a future of the result, for `concurrent.futures.wait` and its like. Cancelling it cancels the call."""
        made: concurrent.futures.Future[Any] = concurrent.futures.Future()

        def ended(_: Handle) -> None:
            if not made.set_running_or_notify_cancel():
                return
            try:
                made.set_result(self.outcome())
            except Exception as error:
                made.set_exception(error)

        self.add_done_callback(ended)
        made.add_done_callback(lambda _: made.cancelled() and self.cancel())
        return made

    def __await__(self) -> Generator[Any, None, Any]:
        return asyncio.wrap_future(self.future()).__await__()

    # For the client.

    def when_ended(self, function: Callable[[Handle], object]) -> None:
        """Add a callback, as `add_done_callback`, for a caller that takes the answer in itself."""
        with _adding:
            if self._callbacks is None:
                self._callbacks = []
            self._callbacks.append(function)
        if self.ended:  # perhaps since the line above
            self._call_back()

    @property
    def is_long(self) -> bool:
        """Return True where the result is in Redis, from which `outcome` has to fetch it."""
        return self._body is not None and claim_stub.is_stub(self._body)

    def outcome(self) -> Any:
        """Return what a call that has ended returned, or raise its error."""
        if self.failure is not None:
            raise self.failure
        if self._body is None:
            return None
        if claim_stub.is_stub(self._body):
            self._fetch()
        return codec.decode(self._body)

    def _fetch(self) -> None:
        """Fetch a long result from Redis, where it is stored for this handle alone, and remove it there."""
        with _fetching:
            stub = self._body
            if stub is not None and claim_stub.is_stub(stub):
                self._body = claim_check.redeem(stub)
                claim_check.release(stub)

    def settle(self, body: bytes | None = None, failure: Exception | None = None) -> None:
        """End the call with a result or an error."""
        self._body, self.failure = body, failure
        self.state = ENDED
        if self.spec.response and claim_stub.is_stub(self.args_body):
            self._client.bodies.forget(self.args_body)  # it is not sent again; a one-way call's worker forgets its body
        if self._callbacks is not None:
            self._call_back()

    def _call_back(self) -> None:
        with _adding:
            functions, self._callbacks = self._callbacks or (), None
        for function in functions:
            try:
                function(self)
            except Exception:
                logger.exception("a callback of a call of %s failed", self.spec.name)
