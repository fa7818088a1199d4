"""The common part of the drivers of a call table: it makes, counts, attends to and gives up calls."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

from celery.utils.log import get_logger

from tasks.amqp.messages import Ids
from tasks.brokers import GONE
from tasks.client.arguments import Args
from tasks.client.call_errors import CLOSED
from tasks.client.call_table import CallTable
from tasks.client.caretaker import caretaker
from tasks.client.future import Handle
from tasks.client.long_bodies import LongBodies, PlainBodies
from tasks.client.outgoing import Outgoing, delay_of
from tasks.service import Spec
from warren.errors import BrokerError

logger = get_logger(__name__)


class Driver(ABC):
    """A client. `may_block`: without it `submit_packed`, `poll` and `expire` return at once, for an event loop.

    `tend`, `cancel` and the parts of `bodies` that use Redis may block: an event loop calls them from another thread,
    `tend` whenever `needs_tending`, at least every `poll_every` s while calls are in flight.
    """

    poll_every: float

    def __init__(self, app: Any, table: CallTable, bodies: LongBodies | PlainBodies, may_block: bool) -> None:
        self._app, self.table, self.bodies, self._may_block = app, table, bodies, may_block
        self._ids = Ids()
        self._attended: set[str] = set()  # ids of calls with a callback
        self._closed = False

    def submit(
        self, spec: Spec, args: Any, kwargs: Any, time_to_live: float | None, extra: Outgoing | None = None
    ) -> Handle:
        """Send one call. Raises CodecError, and BrokerError once closed; the result raises all other errors."""
        body = self.bodies.store(self.bodies.pack(args, kwargs), delay_of(extra))
        return self.submit_packed(spec, body, time_to_live, extra)

    def submit_packed(self, spec: Spec, body: Any, time_to_live: float | None, extra: Outgoing | None = None) -> Handle:
        """Send one call, whose body is what `bodies.store` returned. Raises BrokerError once closed."""
        if extra is None:
            call = Handle(self, spec, self._ids.new(), body, time_to_live)
        else:
            call = Handle(self, spec, extra.call.id, body, time_to_live, extra)
        self._submit(spec, (call,))
        self._fail_if_closed()
        return call

    def submit_all(self, spec: Spec, calls: Iterable[Args], time_to_live: float | None) -> list[Handle]:
        """Send many calls in one write."""
        bodies = [self.bodies.store(self.bodies.pack(one.args, one.kwargs)) for one in calls]
        made = [Handle(self, spec, self._ids.new(), body, time_to_live) for body in bodies]
        self._submit(spec, made)
        self._fail_if_closed()
        return made

    def _fail_if_closed(self) -> None:
        """Fail calls that were taken in while another thread closed this client, and so came too late for `close`."""
        if self._closed:
            self.table.fail_all(BrokerError(CLOSED))

    @abstractmethod
    def _submit(self, spec: Spec, calls: Sequence[Handle]) -> None:
        """Take new calls in, and send them if that is possible now."""

    @abstractmethod
    def wait(self, handle: Handle, timeout: float | None = None) -> None:
        """Return when `handle` has ended; raise TimeoutError after `timeout` s."""

    @abstractmethod
    def look_for(self, seconds: float) -> None:
        """Take in what arrives within `seconds`, until something does."""

    @abstractmethod
    def poll(self) -> None:
        """Take in what has arrived, without waiting."""

    @abstractmethod
    def expire(self) -> None:
        """Fail the calls that have passed their deadline."""

    @abstractmethod
    def tend(self) -> None:
        """Take in what has arrived, send what is due, connect if needed; do nothing while another thread does."""

    @property
    @abstractmethod
    def longest_delay(self) -> float:
        """Return the s that a one-way call may be delayed."""

    @property
    @abstractmethod
    def needs_tending(self) -> bool:
        """Return True where `tend` has something to do."""

    @property
    @abstractmethod
    def link(self) -> Any:
        """Return the connection whose descriptor an event loop may watch; None while there is none."""

    @abstractmethod
    def close(self) -> None:
        """Close for good; calls under way fail."""

    @property
    def closed(self) -> bool:
        """Return whether it was closed for good."""
        return self._closed

    @abstractmethod
    def drop(self) -> None:
        """Drop the connection at once; for a client without calls that is not used any more."""

    def attend(self, handle: Handle) -> None:
        """Have the caretaker take in the answer of `handle`, so that nobody has to wait for it."""
        self._attended.add(handle.id)
        handle.when_ended(lambda ended: self._attended.discard(ended.id))
        caretaker.watch(self)

    def cancel(self, handle: Handle) -> bool:
        """See Handle.cancel."""
        return self.cancel_all([handle])

    def cancel_all(self, handles: Iterable[Handle]) -> bool:
        """Give calls up, and tell the workers; False when all had ended."""
        cancelled = self.table.cancel(handles)
        if cancelled:
            try:
                self._app.control.revoke(cancelled[0] if len(cancelled) == 1 else cancelled)
            except GONE as error:
                logger.debug("the workers were not told that %d calls were cancelled: %s", len(cancelled), error)
        return bool(cancelled)

    @property
    def unconfirmed(self) -> int:
        """Return the number of one-way calls that the broker has not confirmed yet."""
        return self.table.unconfirmed

    @property
    def under_way(self) -> int:
        """Return the number of calls that have not ended."""
        return len(self.table)

    @property
    def attended(self) -> int:
        """Return the number of calls that have a callback and have not ended."""
        return len(self._attended)
