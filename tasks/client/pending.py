"""The calls of one client that have not ended: a table that any thread may use.

Whoever pops a call is the one who ends it, so a call ends once however many threads meet.
"""

from __future__ import annotations

import threading

from tasks.client.future import Handle


class PendingCalls:
    """Call id -> call. `unconfirmed`: how many of them are one-way calls that the broker does not have yet."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: dict[str, Handle] = {}
        self.unconfirmed = 0

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, call: Handle) -> None:
        """Take `call` in; again is harmless."""
        with self._lock:
            if not call.spec.response and call.id not in self._calls:
                self.unconfirmed += 1
            self._calls[call.id] = call

    def get(self, call_id: str) -> Handle | None:
        """The call of that id, if it has not ended."""
        return self._calls.get(call_id)

    def pop(self, call_id: str) -> Handle | None:
        """Take the call of that id out, to end it; None when somebody else has."""
        with self._lock:
            call = self._calls.pop(call_id, None)
            if call is not None and not call.spec.response:
                self.unconfirmed -= 1
            return call

    def all(self) -> list[Handle]:
        """What is pending now."""
        with self._lock:
            return list(self._calls.values())

    def unsent(self, by: float) -> list[Handle]:
        """Calls that are out of the broker's hands and are to be sent by then, on the monotonic clock."""
        return [call for call in self.all() if call.resend_at is not None and call.resend_at <= by]
