"""Runs one server as its child and stops it when the process that asked for it is gone, however that one went.

    python -I -S guard.py GRACE_SECONDS COMMAND [ARGUMENT...]      # standard library only: it must start at once

Standard input is a pipe whose other end the launcher holds: its end means "stop", be it closed on purpose or by the
launcher's death (kill -9 included). A number in it is another grace time, in seconds, and means "stop" as well. Why a
process, not PR_SET_PDEATHSIG in the launcher: that signal comes when the *thread* that forked ends, exists on Linux
only, needs code between fork and exec of a process full of threads, and gives the server no time to close its files.
Here it is the second belt, for a guard that is itself killed.
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
    """Between fork and exec of the server: ask Linux for SIGKILL when the guard dies. The guard has one thread."""
    import ctypes

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != guard:  # it died before the call above: nobody would ever send the signal
        os._exit(1)


def signal_group(child: Any, number: int) -> None:
    """Send to the server's whole process group: a server may be a shell script and what it starts."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)


def stop(child: Any, grace: float) -> None:
    """SIGTERM, up to `grace` seconds to finish, then SIGKILL to whatever is left of the group."""
    if child.poll() is None:
        signal_group(child, signal.SIGTERM)
        deadline = time.monotonic() + grace
        while child.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(timeout=0.05)
    signal_group(child, signal.SIGKILL)
    child.wait()


def watch(start: Callable[[], Any], grace: float, alone: Callable[[], bool]) -> int:
    """`start()` the child, a Popen or what behaves like one, and see to its end; its exit status (128 + n by signal).

    It is stopped when standard input says so, at a signal, and when `alone()`: when who asked for it is gone.
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
            with contextlib.suppress(ValueError, OSError):  # nothing: the pipe has ended
                grace = float(os.read(0, 64))
            break
        if asked or alone():
            break
    stop(child, grace)
    status: int = child.returncode
    return status if status >= 0 else 128 - status


def main(argv: list[str]) -> int:
    """Run, wait for the server's end or for the order to stop; the exit status is the server's (128 + n by signal)."""
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
