"""The one-way calls of one client that the broker has not confirmed."""

from __future__ import annotations

from tasks.client.future import Handle, State


class NumberedCalls:
    """Calls in UNCONFIRMED by the numbers of their messages, which the broker counts from 1 on their channel.

    Its callers hold the lock of the call table.
    """

    def __init__(self) -> None:
        self._calls: dict[int, Handle] = {}  # in the order of their numbers
        self._last = 0

    def __len__(self) -> int:
        return len(self._calls)

    def clear(self) -> None:
        """Forget all calls and count from 1 again, for a new channel."""
        self._calls.clear()
        self._last = 0

    def add(self, call: Handle) -> None:
        """Give the next number to a call, whose message is written next."""
        self._last += 1
        call.state, call.number = State.UNCONFIRMED, self._last
        self._calls[call.number] = call

    def remove(self, call: Handle) -> None:
        """Take out a call that has ended."""
        self._calls.pop(call.number, None)

    def take(self, number: int, multiple: bool) -> list[Handle]:
        """Take out the call of that number (`multiple`: and all before it), unless it waits to be sent again."""
        numbers = [number]
        if multiple:
            numbers = []
            for known in self._calls:
                if known > number:
                    break
                numbers.append(known)
        taken = [self._calls.pop(one, None) for one in numbers]
        return [call for one, call in zip(numbers, taken, strict=True) if call is not None and call.number == one]
