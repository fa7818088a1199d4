"""A process that runs one server as its child and stops it when the launcher is gone, however the launcher ended.

    python -I -S guard.py GRACE_SECONDS COMMAND [ARGUMENT...]      # standard library only: it must start at once

Standard input is a pipe whose other end the launcher holds. The end of this input means "stop", whether the launcher
closed the pipe or died (kill -9 included). A number in it is a new grace time, in seconds, and means "stop" as well.
PR_SET_PDEATHSIG in the launcher would not do. That signal comes when the *thread* that forked ends, and exists on Linux
only. It needs code between fork and exec of a process with threads, and gives the server no time to close its files.
Here
it is used in addition, for a guard that is itself killed.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time

TYPE_CHECKING = False  # typing's own takes as long to import as all of the above
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

PARENT_POLL = 0.5  # seconds; a fork of the launcher may hold the pipe open after the launcher's death, so poll as well
PR_SET_PDEATHSIG = 1


def die_with(guard: int) -> None:
    """Ask Linux for SIGKILL when the guard dies; called between fork and exec. The guard has one thread."""
    import ctypes

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != guard:  # it died before the call above, so the signal would never come
        os._exit(1)


def signal_group(child: Any, number: int) -> None:
    """Send a signal to the server's process group, as a server may be a shell script with children."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        try:
            os.killpg(child.pid, number)
        except ProcessLookupError:
            if child.returncode is None:  # it was just forked, and has no group yet
                os.kill(child.pid, number)


def stop(child: Any, grace: float) -> None:
    """Send SIGTERM, wait up to `grace` seconds, then send SIGKILL to the rest of the group."""
    if child.poll() is None:
        signal_group(child, signal.SIGTERM)
        deadline = time.monotonic() + grace
        while child.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(timeout=0.05)
    signal_group(child, signal.SIGKILL)
    child.wait()


def watch(start: Callable[[], Any], grace: float, alone: Callable[[], bool]) -> int:
    """Start the child by `start()`, which returns a Popen or the like; return its exit status (128 + n after signal n).

    It is stopped by standard input, by a signal, and when `alone()` says that the launcher is gone.
    """
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write)
    asked: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda received, _: asked.append(received))
    signal.signal(signal.SIGCHLD, lambda *_: None)  # only so that select wakes at the server's end

    child = start()
    while child.poll() is None:
        ready, _, _ = select.select([0, wake_read], [], [], PARENT_POLL)
        if wake_read in ready:
            os.read(wake_read, 4096)
        if 0 in ready:
            with contextlib.suppress(ValueError, OSError):  # no number: the pipe has ended
                grace = float(os.read(0, 64))
            break
        if asked or alone():
            break
    stop(child, grace)
    status: int = child.returncode
    return status if status >= 0 else 128 - status


def main(argv: list[str]) -> int:
    """Run the server until it ends or is stopped; return its exit status (128 + n after signal n)."""
    grace, command = float(argv[0]), argv[1:]
    parent, guard = os.getppid(), os.getpid()

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # its own group, out of reach of a terminal's Ctrl-C
            preexec_fn=(lambda: die_with(guard)) if sys.platform == "linux" else None,
        )

    return watch(start, grace, lambda: os.getppid() != parent)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
