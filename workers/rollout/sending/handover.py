"""The bounded hand-over of segments to a thread that sends them, so that no environment step waits for the broker."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

from workers.runtime.timing import Timing

WAITING = 1  # segments that wait while others are sent; more would only be older when they are learned from
SENDERS = 6  # segments sent at once: to a far receiver, sending one takes longer than collecting the next
LOOK_EVERY = 0.1  # s between checks of whether to stop, while waiting


class SendingThread:
    """Sends the segments it is given, in turn, by `send`, which numbers, sends and confirms a segment as a whole.

        sending = SendingThread(send, stopping, room)
        while sending.give(collect()):      # waits while WAITING segments do
            sending.wait_for_room()         # waits while the receiver is full, so that what is collected next is fresh
        sending.end()                       # raises what `send` raised

    `room` waits until the receiver has room. Both `send` and `room` return whether they found room at once. As long as
    they do and `ahead` returns True, the next segment is collected while one is sent; else only when there is room for
    it.
    Once `stopping` is set, `send` itself finishes or gives up the segment in its hands, confirmation included; waiting
    segments are dropped, as nobody was told of them.

    One segment at a time looks for room. `send` calls its second argument when it has found room and the segment is
    about to leave. Then the next segment may look for room, on another thread if this one still waits for the receiver.
    """

    def __init__(
        self,
        send: Callable[[dict[str, Any], Callable[[], None]], bool],
        stopping: threading.Event,
        room: Callable[[], bool],
        timing: Timing | None = None,
        ahead: Callable[[], bool] = lambda: True,
    ) -> None:
        self._send, self._stopping, self._room, self._timing = send, stopping, room, timing or Timing()
        self._ahead = ahead
        self._throttled = False  # the receiver had no room at the last look
        self._free = threading.Event()  # set when everything is sent and there is room for more
        self._waiting: queue.Queue[dict[str, Any]] = queue.Queue(WAITING)
        self._turn = threading.Lock()  # held while a segment looks for room
        self._count = threading.Lock()
        self._under_way = 0  # segments taken and not sent yet
        self._ended = threading.Event()
        self._failure: BaseException | None = None
        self._threads: list[threading.Thread] = []
        self._add_thread()

    def give(self, segment: dict[str, Any]) -> bool:
        """Hand a segment over; return False if sending is over and it was not taken. Raises what `send` raised."""
        self._free.clear()
        while not self._ended.is_set() and not self._stopping.is_set():
            if self._waiting.full() and not self._turn.locked() and len(self._threads) < SENDERS:
                self._add_thread()  # all present threads wait for the receiver, none for room
            try:
                self._waiting.put(segment, timeout=LOOK_EVERY)
                return True
            except queue.Full:
                continue
        if self._failure is not None:
            raise self._failure
        return False

    def wait_for_room(self) -> None:
        """Wait until all is sent and there is room, if there was none lately or `ahead` returns False; else return."""
        while self._looks_first() and not self._ended.is_set() and not self._stopping.is_set():
            if self._free.wait(LOOK_EVERY):
                return

    def end(self) -> None:
        """Wait until no segment is being sent, once `stopping` is set or sending failed. Raises what `send` raised."""
        for thread in self._threads:
            thread.join()
        if self._failure is not None:
            raise self._failure

    def _looks_first(self) -> bool:
        return self._throttled or not self._ahead()

    def _add_thread(self) -> None:
        self._threads.append(threading.Thread(target=self._run, name=f"sender-{len(self._threads)}", daemon=True))
        self._threads[-1].start()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set() and not self._ended.is_set():
                self._send_one()
        except BaseException as error:
            self._failure = self._failure or error
            self._ended.set()

    def _send_one(self) -> None:
        """Send the next segment, if one comes soon."""
        turn = _Turn(self._turn)
        with turn:
            try:
                segment = self._waiting.get(timeout=LOOK_EVERY)
            except queue.Empty:
                return
            with self._count:
                self._under_way += 1
            with self._timing.stage("sender: send"):
                found = self._send(segment, turn.end)
        with self._count:
            self._throttled |= not found
            self._under_way -= 1
            last = not self._under_way and self._waiting.empty()
        if not last:
            return
        if self._looks_first():
            with self._timing.stage("sender: wait for room"):
                self._throttled = not self._room()
        if self._waiting.empty():
            self._free.set()


class _Turn:
    """A lock that is held to the end of a `with` block, or until `end`."""

    def __init__(self, lock: threading.Lock) -> None:
        self._lock, self._held = lock, False

    def __enter__(self) -> None:
        self._lock.acquire()
        self._held = True

    def end(self) -> None:
        if self._held:
            self._held = False
            self._lock.release()

    def __exit__(self, *_: object) -> None:
        self.end()
