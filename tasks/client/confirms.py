"""One-way calls: published in confirm mode, kept until the broker has them, sent again when it refuses."""

from __future__ import annotations

import threading
import time

from tasks.brokers import Connection
from tasks.client.future import Handle
from tasks.client.pending import PendingCalls

REFUSED_FOR = 0.05  # s until a call that a full queue refused is sent again


class Confirms:
    """The channel of one client's one-way calls. The broker numbers messages in the order in which they are written.

    So `sent` and the writing itself are to happen under one lock.
    """

    def __init__(self, link: Connection, calls: PendingCalls) -> None:
        self._calls = calls
        self._lock = threading.Lock()
        self._sent: dict[int, Handle] = {}  # number of the message -> its call, in order
        self._number = 0
        self.channel_id = link.confirm(self._settled)

    def sent(self, call: Handle) -> None:
        """The next message of this channel is this call."""
        with self._lock:
            self._number += 1
            self._sent[self._number] = call

    def _settled(self, number: int, multiple: bool, taken: bool) -> None:
        with self._lock:
            numbers = [known for known in self._sent if known <= number] if multiple else [number]
            found = [call for known in numbers if (call := self._sent.pop(known, None)) is not None]
        for call in found:
            if call.resend_at is not None:
                continue  # no queue had it: it was returned before it was confirmed
            if not taken:
                call.resend_at = time.monotonic() + REFUSED_FOR
            elif self._calls.pop(call.id) is not None:
                call.settle()
