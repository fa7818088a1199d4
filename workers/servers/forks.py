"""The launcher's side of a fork server (fork_server.py): starts it, requests processes, learns of their ends.

    with Forks.begin() as forks:  # before any thread, any connection, any tensor
        forks.load(["workers.learning.learner"])
        child = Child("learner", line, log, environment, forks=forks)

Processes that it cannot fork are started by exec: see `Forks.start`.
"""

from __future__ import annotations

import array
import contextlib
import errno
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Self

from warren.separate_process import python

ANSWER_WITHIN = 60.0  # s; it may still be importing torch, on a busy machine
KILLED = 128 + signal.SIGKILL  # status of a guard that ended without sending one, and of its child

# Variables that are read only by a role's own code, so it is enough to set them in the forked process. Others may have
# been read by an import or at the interpreter's start; a process for which one of those differs is started by exec.
READ_LATE = (
    "WARREN_", "CUDA_VISIBLE_DEVICES", "PYTHONUNBUFFERED",
    "TORCHINDUCTOR_CACHE_DIR", "PYGAME_HIDE_SUPPORT_PROMPT",  # set by imports, alike in all processes
)  # fmt: skip
# For all roles and the fork server. One thread of linear algebra per process, as processes share the cores.
ENVIRONMENT: Mapping[str, str] = {"OMP_NUM_THREADS": "1"}


class ForkedGuard:
    """The guard of a forked process; its socket carries the process's status when both have ended."""

    def __init__(self, pid: int, control: socket.socket) -> None:
        self.pid, self._control = pid, control
        self._polling = threading.Lock()  # the launcher's threads poll as well, as for its metrics
        self._told, self._status = b"", None  # type: tuple[bytes, int | None]

    @property
    def seen_to_end(self) -> bool:
        """Return True once a poll has found that it ended."""
        return self._status is not None

    def poll(self) -> int | None:
        """Return the process's exit status, 128 + n after signal n; None while it runs."""
        with self._polling:
            while self._status is None:
                try:
                    part = self._control.recv(64, socket.MSG_DONTWAIT)
                except BlockingIOError:
                    break
                except ConnectionError:
                    part = b""
                self._told += part
                if not part:
                    self._status = int(self._told or KILLED)
                    self._control.close()
            return self._status

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit status and return it. Raises subprocess.TimeoutExpired after `timeout` s."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (status := self.poll()) is None:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise subprocess.TimeoutExpired("a forked process", timeout or 0.0)
            with contextlib.suppress(ValueError):  # another thread's poll has closed it at the end
                select.select([self._control], [], [], left)
        return status

    def ask(self, grace: float | None) -> None:
        """Tell it to stop the process within `grace` s."""
        with contextlib.suppress(OSError):  # it has ended, or was asked before
            if grace is not None:
                self._control.send(f"{grace:g}\n".encode())
            self._control.shutdown(socket.SHUT_WR)


class Forks:
    """A fork server. Use as a context manager; `say` is called with a line if it dies."""

    def __init__(self, pid: int, connection: socket.socket, environment: Mapping[str, str]) -> None:
        self.pid, self._connection, self._environment = pid, connection, environment
        self._gone = False
        self.say: Callable[[str], object] = lambda line: print(line, file=sys.stderr)

    @classmethod
    def begin(cls) -> Forks | None:
        """Fork the server off this process; return None if it cannot be: with several threads, or not on Linux."""
        if sys.platform != "linux":
            return None
        from workers.servers.fork_server import serve, threads  # they need Linux

        if threads() > 1:
            return None
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        launcher, environment = os.getpid(), {**os.environ, **ENVIRONMENT}
        sys.stdout.flush()
        sys.stderr.flush()
        try:
            pid = os.fork()
        except BlockingIOError:  # too many processes: the next one that begins says so
            ours.close()
            theirs.close()
            return None
        if pid == 0:
            ours.detach()
            os.environ.update(ENVIRONMENT)
            serve(theirs.detach(), launcher)
        theirs.close()
        ours.settimeout(ANSWER_WITHIN)
        return cls(pid, ours, environment)

    def load(self, modules: Iterable[str]) -> None:
        """Let the server import these modules of Warren or libraries; each child imports the user's modules anew."""
        self._send({"modules": [*modules]}, ())

    def start(
        self,
        line: Sequence[str],
        log: BinaryIO,
        environment: Mapping[str, str] | None,
        grace: float,
    ) -> ForkedGuard | None:
        """Fork a guard and a process of `line`, `python -m MODULE ARGUMENT...`; return None if exec has to start it."""
        environment = dict(os.environ) if environment is None else environment
        if self._gone or [*line[:2]] != [sys.executable, "-m"] or differing(self._environment, environment):
            return None
        ours, theirs = socket.socketpair()
        request = {
            "line": [*line],
            "title": " ".join(python(*line[1:])),  # the title that exec would give
            "environment": {**environment},
            "folder": str(Path.cwd()),
            "grace": grace,
        }
        with theirs:
            refusal = self._send(request, [theirs.fileno(), log.fileno()])
            answer: dict[str, Any] = {"refusal": refusal} if refusal else self._answer()
        if "pid" in answer:
            return ForkedGuard(answer["pid"], ours)
        ours.close()
        self._lost(str(answer.get("refusal", "it has ended")))
        return None

    def close(self) -> None:
        """End the server; its processes live on under their guards, and exec starts later ones."""
        self._gone = True
        self._connection.close()
        if self.pid:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
            self.pid = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send(self, request: Mapping[str, object], files: Sequence[int]) -> str:
        """Send a request; return why it could not be sent, "" if it was."""
        carried = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))] if files else []
        message = json.dumps(request).encode()
        try:
            self._connection.sendmsg([message], carried)
        except OSError as error:
            if error.errno == errno.EMSGSIZE:
                return f"the environment is too large: a request has {len(message):,} bytes"
            return "it has ended"
        return ""

    def _answer(self) -> dict[str, Any]:
        try:
            return dict(json.loads(self._connection.recv(1 << 12) or "{}"))
        except (OSError, ValueError):
            return {}

    def _lost(self, why: str) -> None:
        """Close after a failed request, as a late answer could be taken for another's."""
        self.close()
        self.say(f"warning: no more processes can be forked ({why}); those that start from now on take seconds")


def differing(ours: Mapping[str, str], asked: Mapping[str, str]) -> list[str]:
    """Return the variables that rule out a fork of a process whose environment is `asked`."""
    names = ours.keys() | asked.keys()
    return sorted(name for name in names if ours.get(name) != asked.get(name) and not name.startswith(READ_LATE))
