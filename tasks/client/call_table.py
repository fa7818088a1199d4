"""The calls of one client that have not ended, and their states: no sockets, no threads, no clock.

A driver tells the table what happens (`delivered`, `confirmed`, `returned`, `lost`, the passing of time) and writes the
frames that it gives back. rpc.py drives it with threads, async_client.py with an event loop; celery_rpc.py uses it for
calls that Celery sends.

    WAITING ──send, send_due──> SENT (UNCONFIRMED where there is no response) ──delivered, confirmed──> ENDED
       └───────────returned, refused, lost, "its worker died"───────────┘

The thread that takes a call out of the table ends it, so a call ends once, however many meet. The table has a lock of
its own, which is never held while a call is settled: callbacks may send other calls.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

from celery.utils.log import get_logger

from tasks.amqp import frames
from tasks.amqp.messages import FAILED, LOST
from tasks.client.call_errors import cancelled, deadline_passed, error_of_loss, remote_failure
from tasks.client.call_frames import CallFrames
from tasks.client.failures import Failures
from tasks.client.future import Handle, State
from tasks.client.numbered_calls import NumberedCalls
from tasks.client.waiting_calls import WaitingCalls

logger = get_logger(__name__)

ASK_AGAIN = 0.1  # s until a call that found no queue is sent again
REFUSED_FOR = 0.05  # s until a call that a full queue refused is sent again
SENT, WAITING = State.SENT, State.WAITING  # looked up for each call
RESULT = b"\x04\x00"  # the property flags of an answer that is a result: a correlation id and nothing else


class CallTable:
    """Calls under way. `now` is always the monotonic clock; `patience`: s that a service may be without a worker."""

    def __init__(self, call_frames: CallFrames, patience: float) -> None:
        self._frames, self._patience = call_frames, patience
        self._lock = threading.Lock()
        self._calls: dict[str, Handle] = {}
        self._waiting = WaitingCalls()
        self._numbered = NumberedCalls()
        self.served: set[str] = set()  # names of services that have had a worker
        self.confirming = False  # there is a channel for one-way calls
        self.unconfirmed = 0  # one-way calls that the broker has not confirmed yet
        self.failures = Failures()

    def __len__(self) -> int:
        return len(self._calls)

    # Sending. The broker numbers messages in the order in which they come. So nothing else may be written between
    # `send` or `send_due` and the writing of their frames.

    def opened(self, channel: int, frame_max: int) -> None:
        """Write calls for a new connection from now on."""
        with self._lock:
            self._forget_numbers()
        self._frames.open(channel, frame_max)

    def confirm_on(self, channel: int) -> None:
        """Write one-way calls for this new channel, which numbers them from 1."""
        with self._lock:
            self._forget_numbers()
            self.confirming = True
        self._frames.open_one_way(channel)

    def send(self, calls: Sequence[Handle], now: float) -> bytes:
        """Take new calls in; return the frames to write for them."""
        data = b"".join([self._frames.of(call, now) for call in calls])  # before any is taken in: it may raise
        with self._lock:
            for call in calls:
                self._calls[call.id] = call
                if call.spec.response:
                    call.state = SENT
                else:
                    self.unconfirmed += 1
                    self._numbered.add(call)
        return data

    def send_later(self, calls: Iterable[Handle], due: float = 0.0) -> None:
        """Take new calls in that cannot be written now."""
        with self._lock:
            for call in calls:
                self._calls[call.id] = call
                if not call.spec.response:
                    self.unconfirmed += 1
                self._waiting.add(call, due)

    def send_due(self, now: float, most: int) -> bytes:
        """Return the frames of up to `most` calls that are due; b"" when none is due, or none can be written."""
        data = []
        with self._lock:
            for call in self._waiting.take_due(now, most, self.confirming):
                data.append(self._frames.of(call, now))
                self._sent(call)
        return b"".join(data)

    def take_due(self, now: float) -> list[Handle]:
        """Return the calls that are due and count them as sent, for a driver that does not write frames."""
        with self._lock:
            found = self._waiting.take_due(now, len(self._waiting) + 1, self.confirming)
            for call in found:
                self._sent(call)
            return found

    def due(self, now: float) -> bool:
        """Return whether any call may be due."""
        return self._waiting.next_due <= now

    def one_way_waiting(self) -> list[Handle]:
        """Return the one-way calls that wait to be sent."""
        with self._lock:
            return [call for call in self._waiting if not call.spec.response]

    def _sent(self, call: Handle) -> None:
        if call.spec.response:
            call.state = SENT
        else:
            self._numbered.add(call)

    def _forget_numbers(self) -> None:
        self._numbered.clear()
        self.confirming = False

    # Reports of the broker.

    def delivered(self, properties: bytes, body: bytes) -> bool:
        """Take in an answer: a result, a failure, or LOST. Return False where no call waits for it any more."""
        if properties[:2] == RESULT:
            call = self._pop(properties[3:].decode("ascii", "replace"))
            if call is None:
                return False
            self.served.add(call.spec.name)
            call.settle(body)
            return True
        try:
            read = frames.read_properties(properties)
        except frames.Malformed as error:
            logger.error("an answer cannot be read, its call waits until its deadline: %s", error)
            return True
        call = self._calls.get(read.correlation_id)
        if call is None:
            return False
        if read.type == LOST:
            self._end_all(self._retry([call], "the worker that held SERVICE died"))
        elif self._pop(call.id) is None:
            return False
        elif read.type == FAILED:
            call.settle(failure=remote_failure(call, body))
        else:
            call.settle(body)
        return True

    def confirmed(self, number: int, multiple: bool, taken: bool, now: float) -> None:
        """End the one-way call of that number (`multiple`: and all before it), or send it again where not `taken`."""
        ended = []
        with self._lock:
            for call in self._numbered.take(number, multiple):
                if call.id not in self._calls:
                    continue  # it ended before it was confirmed
                if taken:
                    ended.append(call)
                else:
                    self._waiting.add(call, now + REFUSED_FOR)
        for call in ended:
            self.end(call)

    def returned(self, call_id: str, now: float) -> Handle | None:
        """Send a call again that no queue took: no worker has ever served it, or its queue has expired.

        Returns the call if that has gone on for longer than the patience.
        """
        with self._lock:
            call = self._calls.get(call_id)
            if call is None:
                return None
            self._waiting.add(call, now + ASK_AGAIN)
        return call if now - _unserved_since(call, now) >= self._patience else None

    def lost(self) -> list[tuple[Handle, Exception]]:
        """Let the calls under way on a broken connection wait to be sent again, if they may be.

        Returns those that may not, with their errors, for `fail`.
        """
        with self._lock:
            self._forget_numbers()
            calls = [call for call in self._calls.values() if call.state is not State.WAITING]
        return self._retry(calls, "the connection to the broker broke while SERVICE was under way")

    def _retry(self, calls: Iterable[Handle], why: str) -> list[tuple[Handle, Exception]]:
        failed: list[tuple[Handle, Exception]] = []
        with self._lock:
            for call in calls:
                if call.id not in self._calls:
                    continue
                if (error := error_of_loss(call, why)) is not None:
                    failed.append((call, error))
                else:
                    # A one-way call is sent until the broker has it: it may arrive twice, it is not lost.
                    call.retries += 1 if call.spec.response else 0
                    self._waiting.add(call, 0.0)
        return failed

    # Time.

    def expire(self, now: float, blocked: str = "") -> None:
        """End calls that have passed their deadline. `blocked`: why the broker takes no messages now, or ""."""
        with self._lock:
            late = [call for call in self._calls.values() if call.deadline <= now]
        self._end_all([(call, deadline_passed(call, blocked)) for call in late])

    def out_since(self, before: float) -> set[str]:
        """Return the services with calls that were sent before that time and still wait for an answer."""
        with self._lock:
            return {call.spec.name for call in self._calls.values() if call.state is SENT and call.sent_at < before}

    def counted(self, name: str, consumers: int, now: float) -> list[Handle]:
        """Note how many consume a service's queue; return its calls unserved for longer than the patience."""
        if consumers:
            self.served.add(name)
        with self._lock:
            calls = [call for call in self._calls.values() if call.spec.name == name and call.state is SENT]
        if consumers:
            for call in calls:
                call.unserved_since = None
            return []
        return [call for call in calls if now - _unserved_since(call, now) >= self._patience]

    # Ends.

    def end(self, call: Handle, body: bytes | None = None) -> None:
        """End a call with its result."""
        if self._pop(call.id) is not None:
            call.settle(body)

    def fail(self, call: Handle, error: Exception) -> None:
        """End a call with `error`. One-way calls, for which nobody may be waiting, are counted and logged."""
        if self._pop(call.id) is None:
            return
        if not call.spec.response:
            self.failures.add(call.spec.name, error)
        call.settle(failure=error)

    def fail_all(self, error: Exception, waiting: bool = False) -> None:
        """End all calls with `error`; if `waiting`, only those that wait to be sent."""
        with self._lock:
            calls = list(self._waiting if waiting else self._calls.values())
        if calls:
            one_way = sum(not call.spec.response for call in calls)
            logger.warning("%d calls failed, of which %d were one-way and are lost: %s", len(calls), one_way, error)
        self._end_all([(call, error) for call in calls])

    def cancel(self, calls: Iterable[Handle]) -> list[str]:
        """Give calls up; return the ids of those that had not ended."""
        given_up = []
        for call in calls:
            if self._pop(call.id) is not None:
                given_up.append(call.id)
                call.settle(failure=cancelled(call))
        return given_up

    def sent(self) -> list[Handle]:
        """Return the calls whose answers are awaited."""
        with self._lock:
            return [call for call in self._calls.values() if call.state is SENT]

    def _pop(self, call_id: str) -> Handle | None:
        with self._lock:
            call = self._calls.pop(call_id, None)
            if call is not None:
                if call.state is WAITING:
                    self._waiting.remove(call)
                if not call.spec.response:
                    self._numbered.remove(call)
                    self.unconfirmed -= 1
            return call

    def _end_all(self, failed: Iterable[tuple[Handle, Exception]]) -> None:
        for call, error in failed:
            self.fail(call, error)


def _unserved_since(call: Handle, now: float) -> float:
    if call.unserved_since is None:
        call.unserved_since = now
    return call.unserved_since
