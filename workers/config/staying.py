"""A role that has done its work, in a container that is restarted whenever it ends.

WARREN_RESTART is the container's restart policy. Under `always` and `unless-stopped` a process that ended would be
started again, find that the run is over, and end again, for ever. So it becomes a `sleep`, which takes no memory.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable

VARIABLE = "WARREN_RESTART"
STARTED_AGAIN = ("always", "unless-stopped")
STOPS = {signal.SIGINT, signal.SIGTERM, signal.SIGQUIT}


def restarted() -> bool:
    """Return whether this process's container is restarted however it ends."""
    return os.environ.get(VARIABLE) in STARTED_AGAIN


def watch_stops() -> Callable[[], bool]:
    """Return a function that returns whether a stop signal has arrived since, whichever code handles it."""
    reading, writing = os.pipe()
    for end in (reading, writing):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)

    def told() -> bool:
        try:
            return bool(STOPS & set(os.read(reading, 65536)))
        except BlockingIOError:
            return False

    return told


def stay_unless(told: Callable[[], bool]) -> None:
    """Replace this process by one that sleeps until a stop signal; return if `told` says that one has arrived."""
    for number in STOPS:  # from here on one of these ends the process
        signal.signal(number, signal.SIG_DFL)
    if told():
        return
    logging.getLogger(__name__).info("its work is done; it stays idle until this container is stopped")
    for handler in logging.getLogger().handlers:
        handler.flush()
    os.execvp("sleep", ["sleep", "infinity"])
