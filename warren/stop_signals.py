"""Signals that tell a process to stop, heard by a thread.

A handler interrupts its thread anywhere, also inside `threading.Event.wait` while that holds the event's lock: it must
not set the event itself, or it may wait for ever.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from queue import SimpleQueue


def hear(told: Callable[[int], None]) -> None:
    """Call `told` with the number of each SIGINT and SIGTERM from now on, in a thread of its own."""
    arrived: SimpleQueue[int] = SimpleQueue()  # whose `put` may interrupt any of its methods

    def tell() -> None:
        while True:
            told(arrived.get())

    threading.Thread(target=tell, name="stop signals", daemon=True).start()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: arrived.put(number))
