"""A process with everything imported that forks Python processes on request: a start takes 20 ms instead of seconds.

`forks.py` forks it from a launcher that has one thread and has computed nothing: torch that was used before a fork
hangs in the child. It also has one thread and computes nothing; it imports the modules it is told to, and forks. It
forks a guard (guard.py), which forks the process proper and ends it, as the guard of an executed process does. The
process looks like a fresh `python -m MODULE ARGUMENT...` from within and without: environment, folder, output, session,
signals, `sys.argv`, `__main__`, exit status.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import json
import os
import runpy
import signal
import socket
import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any, NoReturn

from workers.servers import guard
from workers.servers.leaving import leave
from workers.servers.process_title import set_title

MOST = 1 << 20  # bytes of a request
HIGHEST = 1 << 20  # above any file descriptor
CONTROL, LOG = range(2)  # the files that come with a request
DEFAULTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)


def serve(requests: int, launcher: int) -> NoReturn:
    """Answer requests on the socket `requests` until its other end is closed; never returns.

    A child leaves it by SystemExit, through all frames above, so that it ends as any interpreter does.
    """
    guard.die_with(launcher)  # nothing here needs an orderly end
    os.setsid()  # a Ctrl-C in the terminal is only for the launcher
    null = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(null, number)
    os.dup2(requests, 3)
    os.closerange(4, HIGHEST)
    os.environ.update({**os.environ})  # out of the title's way
    set_title(f"{sys.executable} {__file__} of process {launcher}")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system forgets guards that have ended
    connection = socket.socket(fileno=3)
    refusal = ""
    while True:
        message, files, _, _ = socket.recv_fds(connection, MOST, 2)
        if not message:
            os._exit(0)
        request = json.loads(message)
        if "modules" in request:
            refusal = refusal or _import(request["modules"])
            continue
        if threads() > 1:
            refusal = f"{threads()} threads run in the process that would be forked"
        if refusal:
            answer: dict[str, Any] = {"refusal": refusal}
        elif pid := os.fork():
            answer = {"pid": pid}
        else:
            connection.detach()
            _guard(request, files, launcher)
        for file in files:
            os.close(file)
        connection.send(json.dumps(answer).encode())


def threads() -> int:
    """Return the number of this process's threads, including those of libraries."""
    return len([*Path("/proc/self/task").iterdir()])


def _import(modules: list[str]) -> str:
    try:
        for module in modules:
            importlib.import_module(module)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    gc.collect()
    gc.freeze()  # collections in the children would write to all of it, and so copy it
    return ""


class Forked:
    """A child of a guard, with the interface of subprocess.Popen that guard.py uses."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return its exit status, -n after signal n; None while it runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float = float("inf")) -> None:
        """Wait until it has ended, for at most `timeout` s."""
        deadline = time.monotonic() + timeout
        while self.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)


def _guard(request: dict[str, Any], files: list[int], launcher: int) -> NoReturn:
    """Guard a child, in the forked process; send its status on standard input, which is a socket, and end."""
    set_title(" ".join([sys.executable, guard.__file__, f"{request['grace']:g}", request["title"]]))
    os.setsid()
    # Duplicated first: a file may have the number that another one gets.
    kept = [os.dup(file) for file in files]
    os.dup2(kept[CONTROL], 0)
    os.dup2(kept[LOG], 1)
    os.dup2(kept[LOG], 2)
    os.closerange(3, HIGHEST)
    me = os.getpid()

    def start() -> Forked:
        # The child would swallow a signal that met it before it has handlers of its own.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, DEFAULTS)
        if pid := os.fork():
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            return Forked(pid)
        _child(request, me, before)

    status = guard.watch(start, request["grace"], lambda: _has_ended(launcher))
    with contextlib.suppress(OSError):  # the launcher is gone
        os.write(0, str(status).encode())
    os._exit(0)


def _has_ended(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False


def _child(request: dict[str, Any], parent: int, unblocked: Collection[int]) -> NoReturn:
    """Make the process proper look freshly started and run its module; raises SystemExit at the end.

    `unblocked`: the signal mask that it gets once it has handlers of its own.
    """
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.closerange(3, HIGHEST)
    guard.die_with(parent)
    line, environment = request["line"], request["environment"]
    signal.set_wakeup_fd(-1, warn_on_full_buffer=False)
    for number in DEFAULTS:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
    os.environ.clear()
    os.environ.update(environment)
    set_title(request["title"])
    unbuffered = bool(environment.get("PYTHONUNBUFFERED"))
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)))  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = _output(1, unbuffered)  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _output(2, unbuffered)  # type: ignore[misc]
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()  # `random` reseeds itself; torch has the same seed in all fresh processes
    importlib.invalidate_caches()  # a file may be newer than the listing of its folder
    sys.argv = ["-m", *line[3:]]
    code: Any = 0
    try:
        os.chdir(request["folder"])
        runpy.run_module(line[2], run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        code = ended.code
    except Exception as error:  # the traceback should begin in the module
        traceback = error.__traceback__ and error.__traceback__.tb_next
        sys.excepthook(type(error), error.with_traceback(traceback), traceback)
        code = 1
    leave(code)


def _output(number: int, unbuffered: bool) -> io.TextIOWrapper:
    raw = io.FileIO(number, "w", closefd=False)
    errors = "backslashreplace" if number == 2 else None
    if unbuffered:
        return io.TextIOWrapper(raw, errors=errors, write_through=True)
    return io.TextIOWrapper(io.BufferedWriter(raw), errors=errors, line_buffering=number == 2)
