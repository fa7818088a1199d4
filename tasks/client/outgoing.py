"""Calls written to the connection there is: numbered in the order of the wire, kept where there is none."""

from __future__ import annotations

import select
import threading
from collections.abc import Callable, Sequence

from celery.utils.log import get_logger

from tasks.brokers import GONE, Connection
from tasks.client.call_frames import CallFrames
from tasks.client.confirms import Confirms
from tasks.client.future import Handle
from tasks.client.pending import PendingCalls
from tasks.client.reconnect import Reconnector
from tasks.topology import Topology

logger = get_logger(__name__)

AT_ONCE = 256  # calls in one write, of those that are sent again


class Outgoing:
    """Writes calls and enters them in the table `calls`; what cannot be written now is left to `send_again`.

    Without `may_block` nothing is written that would have to wait. `on_lost` is told of a connection that broke.
    `send` may be called by any thread, the others by who holds the client's lock.
    """

    def __init__(
        self,
        topology: Topology,
        connector: Reconnector,
        calls: PendingCalls,
        may_block: bool,
        on_lost: Callable[[Connection, BaseException], None],
    ) -> None:
        self._connector, self._calls, self._may_block, self._on_lost = connector, calls, may_block, on_lost
        self._frames = CallFrames(topology)
        self._confirms: Confirms | None = None
        self._lock = threading.Lock()  # while calls are numbered and written

    @property
    def confirms(self) -> bool:
        """Whether one-way calls can be written, which the broker confirms."""
        return self._confirms is not None

    def open_confirms(self) -> None:
        """The channel of one-way calls, if there is a connection."""
        link = self._connector.link
        if self._confirms is None and link is not None and link.alive and not link.blocked:
            try:
                self._confirms = Confirms(link, self._calls)
            except GONE as error:
                self._on_lost(link, error)

    def send(self, calls: Sequence[Handle], one_way: bool) -> None:
        """Make the calls pending and write them."""
        with self._lock:
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

    def send_again(self, now: float) -> None:
        """Write what is out of the broker's hands and due."""
        due = self._calls.unsent(now)
        if due and any(not call.spec.response for call in due):
            self.open_confirms()
        link = self._connector.link
        if link is None or link.blocked:
            return
        for start in range(0, len(due), AT_ONCE):
            with self._lock:
                # In the lock: another thread may have ended some of them since.
                left = [call for call in due[start : start + AT_ONCE] if self._calls.get(call.id) is call]
                link.send(b"".join([self._enter(link, call) for call in left]))

    def begin(self) -> None:
        """A new connection is about to be used."""
        with self._lock:
            self._confirms = None
            self._frames.forget()

    def lost(self, link: Connection) -> bool:
        """The connection broke; False where that was known."""
        with self._lock:
            if not self._connector.lost(link):
                return False
            self._confirms = None
            return True

    def _enter(self, link: Connection, call: Handle) -> bytes:
        """Enter the call under its id, and a one-way call among those to be confirmed too; its frames."""
        if not call.spec.response:
            assert self._confirms is not None  # see `send`
            self._confirms.sent(call)
        call.resend_at = None
        self._calls.add(call)
        return self._frames.of(link, call, self._confirms)


def _writable(link: Connection) -> bool:
    """Whether something can be written without a wait."""
    poll = select.poll()
    poll.register(link.fileno(), select.POLLOUT)
    return bool(poll.poll(0))
