"""The calls of one client that wait to be sent."""

from __future__ import annotations

from collections.abc import Iterator

from tasks.client.future import Handle, State

NEVER = float("inf")


class WaitingCalls:
    """Calls in the state WAITING, in the order in which they entered it. Callers hold the lock of the call table."""

    def __init__(self) -> None:
        self._calls: dict[str, Handle] = {}
        self.next_due = NEVER  # none is due before

    def __len__(self) -> int:
        return len(self._calls)

    def __iter__(self) -> Iterator[Handle]:
        return iter(self._calls.values())

    def add(self, call: Handle, due: float) -> None:
        """Let a call wait until `due`."""
        call.state, call.due, call.number = State.WAITING, due, 0
        self._calls[call.id] = call
        self.next_due = min(self.next_due, due)

    def remove(self, call: Handle) -> None:
        """Take out a call that has ended."""
        self._calls.pop(call.id, None)

    def take_due(self, now: float, most: int, one_way: bool) -> list[Handle]:
        """Take out up to `most` calls that are due; `one_way`: those without a response, too."""
        found = []
        for call in self._calls.values():
            if call.due <= now and (call.spec.response or one_way):
                found.append(call)
                if len(found) == most:
                    break
        for call in found:
            del self._calls[call.id]
        if len(found) < most:
            self.next_due = min((call.due for call in self._calls.values()), default=NEVER)
        return found
