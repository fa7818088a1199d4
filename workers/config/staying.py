"""A role that has done its work, in a container that is started again whenever it ends.

WARREN_RESTART is the container's restart policy. Under `always` and `unless-stopped` an end would be a new start, which
finds that the run is over and ends again, for ever. So the process stays, as a `sleep` that takes no memory.
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
    """Return whether this process is started again however it ends."""
    return os.environ.get(VARIABLE) in STARTED_AGAIN


def watch_stops() -> Callable[[], bool]:
    """Return a function that returns whether this process has been told to stop since; whoever handles the signals."""
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
    """Become a process that does nothing until it is told to stop; return where it has been `told` to already."""
    for number in STOPS:  # from here on one of these ends the process
        signal.signal(number, signal.SIG_DFL)
    if told():
        return
    logging.getLogger(__name__).info("its work is done; it stays idle until this container is stopped")
    for handler in logging.getLogger().handlers:
        handler.flush()
    os.execvp("sleep", ["sleep", "infinity"])
