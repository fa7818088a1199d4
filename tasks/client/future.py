"""A call under way, as its caller holds it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from tasks import codec
from tasks.codec import claim_check
from tasks.service import Spec
from warren.errors import CallError

_fetching = threading.Lock()  # held while a long result is fetched: several threads may ask for it


class Bodies(Protocol):
    """What a handle needs of its client's bodies."""

    def forget(self, body: bytes) -> None:
        """A call's body is not sent again: what waits for it elsewhere may go."""


class Waiter(Protocol):
    """What a handle needs of the client that made it."""

    @property
    def bodies(self) -> Bodies:
        """Of its calls."""

    def poll(self) -> None:
        """Take in what has arrived, without waiting."""

    def wait(self, handle: Handle, timeout: float | None = None) -> None:
        """Return when `handle` has ended; TimeoutError after `timeout` s."""

    def cancel(self, handle: Handle) -> bool:
        """Give a call up; False when it had ended."""


class Handle:
    """A call under way. `result()` waits for it; any thread may."""

    __slots__ = (
        "_body",
        "_client",
        "args_body",
        "deadline",
        "ended",
        "failure",
        "id",
        "on_end",
        "resend_at",
        "retries",
        "sent_at",
        "spec",
        "time_to_live",
        "unserved_since",
    )

    def __init__(self, client: Waiter, spec: Spec, call_id: str, body: bytes, time_to_live: float | None) -> None:
        self._client, self.spec, self.id, self.args_body = client, spec, call_id, body
        self.time_to_live, self.sent_at = time_to_live, time.monotonic()
        self.deadline = float("inf") if time_to_live is None else self.sent_at + time_to_live
        self.retries = 0
        self.resend_at: float | None = None  # set while the call is out of the broker's hands
        self.unserved_since: float | None = None
        self.ended = False
        self.on_end: Callable[[], None] | None = None  # called once the call has ended, by whichever thread ends it
        self._body: bytes | memoryview | None = None
        self.failure: Exception | None = None  # its error, once it has ended with one

    def done(self) -> bool:
        """Whether there is a result or an error; takes in what has arrived."""
        if not self.ended:
            self._client.poll()
        return self.ended

    def result(self, timeout: float | None = None) -> Any:
        """What the service returned. Raises CallError's subclasses, and TimeoutError after `timeout` s: ask again."""
        if not self.ended:
            self._client.wait(self, timeout)
        return self.outcome()

    def exception(self, timeout: float | None = None) -> Exception | None:
        """The error that `result` would raise, or None."""
        try:
            self.result(timeout)
        except CallError as error:
            return error
        return None

    def cancel(self) -> bool:
        """Give the call up: it is not waited for, and not run where it has not begun. False when it had ended."""
        return self._client.cancel(self)

    @property
    def is_long(self) -> bool:
        """Whether the result waits in Redis, from where `outcome` has to fetch it."""
        return self._body is not None and claim_check.is_stub(self._body)

    def outcome(self) -> Any:
        """What a call that has ended returned, or its error raised."""
        if self.failure is not None:
            raise self.failure
        if self._body is None:
            return None
        if claim_check.is_stub(self._body):
            self._fetch()
        return codec.decode(self._body)

    def _fetch(self) -> None:
        """A long result from where it waits; this handle is the only one that it is for."""
        with _fetching:
            stub = self._body
            if stub is not None and claim_check.is_stub(stub):
                self._body = claim_check.redeem(stub)
                claim_check.release(stub)

    def settle(self, body: bytes | None = None, failure: Exception | None = None) -> None:
        """The call has ended."""
        self._body, self.failure = body, failure
        self.ended = True
        if self.spec.response and claim_check.is_stub(self.args_body):
            self._client.bodies.forget(self.args_body)  # it is not sent again; of a one-way call its worker forgets it
        if self.on_end is not None:
            self.on_end()
