"""A child process: started under a guard, with its output in a file, stopped within a bounded time."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import psutil

from warren.errors import BrokerError
from warren.files import write_whole
from warren.separate_process import python
from workers.servers.forks import ForkedGuard, Forks
from workers.servers.ports import free_port, require_free

GUARD = Path(__file__).with_name("guard.py")
READ = 256 << 10  # bytes read at the end of a log
LONGEST_LOG = 64 << 20  # bytes; what is older is in a second file, NAME.log.1
TAIL_LINES = 12  # lines of a dead server's output in its error
PORT_ATTEMPTS = 5
PORT_TAKEN = re.compile(r"eaddrinuse|address already in use|port \d+ in use", re.IGNORECASE)
POLL = 0.05  # seconds between two checks whether a server is ready


class ExecutedGuard(subprocess.Popen[bytes]):
    """The guard of a process that is started by exec; its standard input tells it to stop."""

    @property
    def seen_to_end(self) -> bool:
        """Return whether a poll has found that it ended. Takes no lock, unlike a poll."""
        return self.returncode is not None

    def ask(self, grace: float | None) -> None:
        """Tell it to stop the process within `grace` s."""
        assert self.stdin is not None
        with contextlib.suppress(OSError, ValueError):  # ValueError: it was asked before
            if grace is not None and not self.stdin.closed:
                self.stdin.write(f"{grace:g}\n".encode())
            self.stdin.close()


class Child:
    """A process under its guard, which ends with this process, however this one ends. `log` is appended to.

    `forks`: forks the process if possible; else exec starts it.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        log: Path,
        env: Mapping[str, str] | None = None,
        grace: float = 5.0,
        forks: Forks | None = None,
    ) -> None:
        self.name, self.log, self._grace, self._forks = name, log, grace, forks
        self._command, self._env = [*map(str, command)], dict(env) if env is not None else None
        self._guard, self._log_start = self._start()
        self._server: psutil.Process | None = None

    def _start(self) -> tuple[ExecutedGuard | ForkedGuard, int]:
        log_start = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as output:
            self.log.chmod(0o600)
            if self._forks is not None:
                forked = self._forks.start(self._command, output, self._env, self._grace)
                if forked is not None:
                    return forked, log_start
            guard = ExecutedGuard(
                [sys.executable, "-I", "-S", str(GUARD), str(self._grace), *self._line()],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self._env,
                start_new_session=True,  # a Ctrl-C in the terminal is only for the launcher
            )
        return guard, log_start

    def _line(self) -> list[str]:
        of_module = self._command[:2] == [sys.executable, "-m"]
        return python(*self._command[1:]) if of_module else self._command

    def start_again(self) -> None:
        """Start the command of a server that has ended again; does not wait until it is ready."""
        self._guard, self._log_start = self._start()
        self._server = None

    @property
    def alive(self) -> bool:
        """Return whether the server still runs."""
        return self._guard.poll() is None

    @property
    def status(self) -> int | None:
        """Return the exit status of the server (128 + n after signal n); None while it runs."""
        return self._guard.poll()

    def output(self) -> str:
        """Return the output of the server since its last start, of at most READ bytes at the end."""
        with self.log.open("rb") as stream:
            stream.seek(max(self._log_start, stream.seek(0, 2) - READ))
            return stream.read(READ).decode(errors="replace")

    def rotate(self) -> None:
        """Put a log over LONGEST_LOG aside, in the place of the one before; the process writes on into the same file.

        The process holds that file open. Its output between the copy and the cut, within milliseconds, is lost.
        """
        older = self.log.with_name(f"{self.log.name}.1")
        with contextlib.suppress(OSError):  # no log is there, or none can be written: tried again at the next look
            if self.log.stat().st_size <= LONGEST_LOG:
                return
            try:
                shutil.copyfile(self.log, older)
                older.chmod(0o600)
            except OSError:
                older.unlink(missing_ok=True)  # the disk is full: half a copy would take what is left
                return
            os.truncate(self.log, 0)
            self._log_start = 0

    def last_lines(self) -> str:
        """Return the last lines of output, indented, for an error message."""
        lines = [line.rstrip()[:400] for line in self.output().splitlines() if line.strip()]
        return "\n".join(f"    {line}" for line in lines[-TAIL_LINES:]) or "    (it printed nothing)"

    def death(self) -> str:
        """Return a message about a server that ended by itself: its status, its log, its last lines."""
        status = explain_status(self._guard.poll())
        return f"{self.name} ended with status {status}; the end of {self.log}:\n{self.last_lines()}"

    def server(self) -> psutil.Process | None:
        """Return the process below the guard; None if it has ended or has not started."""
        if self._server is None:  # searched once, as psutil reads all processes of the machine for it
            with contextlib.suppress(psutil.Error):
                self._server = next(iter(psutil.Process(self._guard.pid).children()), None)
        return self._server if self._server is not None and self._server.is_running() else None

    def wait_until(self, ready: Callable[[], bool], timeout: float) -> None:
        """Wait until `ready()` holds. Raises BrokerError if the server dies or `timeout` seconds pass first."""
        deadline = time.monotonic() + timeout
        while not ready():
            if not self.alive:
                raise BrokerError(self.death())
            if time.monotonic() > deadline:
                raise BrokerError(
                    f"{self.name} was not ready after {timeout:g} s; the end of {self.log}:\n{self.last_lines()}"
                )
            time.sleep(POLL)

    def ask_to_stop(self, grace: float | None = None) -> None:
        """Begin to stop without waiting, so that several servers can stop at the same time.

        `grace`: s until SIGKILL; None: as given at the start.
        """
        if grace is not None:
            self._grace = grace
        self._guard.ask(grace)

    def stop(self) -> None:
        """Stop by SIGTERM, then SIGKILL after the grace time. Idempotent; takes at most the grace time and 5 s."""
        self.ask_to_stop()
        try:
            self._guard.wait(timeout=self._grace + 4)
        except subprocess.TimeoutExpired:  # a guard that hangs, e.g. stopped by SIGSTOP
            _kill_tree(self._guard.pid)
            self._guard.wait(timeout=1)

    def kill_at_once(self) -> None:
        """Send SIGKILL to the server and its children without waiting: for a signal's handler.

        The code that the handler interrupted may hold the lock that a wait would take.
        """
        if not self._guard.seen_to_end:
            _kill_tree(self._guard.pid)

    def kill(self) -> None:
        """Kill the server and its children by SIGKILL; return when they are gone."""
        if self.alive:  # else its PID may belong to another process by now
            _kill_tree(self._guard.pid)
        self._guard.wait()


def explain_status(status: int | None) -> str:
    """Return an exit status as text, with the signal's name if it is 128 + n."""
    if status is None or status <= 128:
        return str(status)
    try:
        name = signal.Signals(status - 128).name
    except ValueError:
        return str(status)
    why = "; out of memory?" if name == "SIGKILL" else ""
    return f"{status}: killed ({name}{why})"


def _kill_tree(pid: int) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        for process in [*root.children(recursive=True), root]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


class Server(Protocol):
    """A server whose processes were started."""

    def wait_until_ready(self) -> None:
        """Wait until it answers. Raises BrokerError if it does not."""

    def stop(self) -> None:
        """Stop the server's processes."""


S = TypeVar("S", bound=Server)


class Starting(Generic[S]):
    """A server that boots, at the given port or a free one, while its starter may do something else.

    `begin(port)` starts its processes and returns at once. Raises ConfigurationError if the `port` is taken.
    """

    def __init__(self, begin: Callable[[int], S], port: int | None, name: str) -> None:
        if port is not None:
            require_free(port, name)
        self._begin, self._attempts = begin, PORT_ATTEMPTS if port is None else 1
        self._server = begin(free_port() if port is None else port)

    def finish(self) -> S:
        """Wait until the server answers and return it; try another port if a free one was taken meanwhile.

        Stops it and raises BrokerError if it does not answer.
        """
        while True:
            try:
                self._server.wait_until_ready()
                return self._server
            except BaseException as error:
                self._server.stop()
                self._attempts -= 1
                taken = isinstance(error, BrokerError) and PORT_TAKEN.search(str(error)) is not None
                if not taken or not self._attempts:
                    raise
            self._server = self._begin(free_port())

    def stop(self) -> None:
        """Stop the server that boots."""
        self._server.stop()


def private_folder(path: Path) -> Path:
    """Make `path` readable by this user alone, as it will hold passwords, and return it."""
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o700)
    return path


def write_secret(path: Path, data: bytes | str) -> None:
    """Write a file that only this user can ever read."""
    write_whole(path, data, mode=0o600)
