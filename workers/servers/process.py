"""One server process of ours: started under a guard, with its output in a file, stopped within a bounded time."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import psutil

from warren.errors import BrokerError, ConfigurationError
from workers.servers.forks import ForkedGuard, Forks

GUARD = Path(__file__).with_name("guard.py")
LOOPBACK = "127.0.0.1"
READ = 256 << 10  # bytes at the end of a log that are looked at
TAIL_LINES = 12  # of a dead server's output, in its error
PORT_ATTEMPTS = 5
PORT_TAKEN = re.compile(r"eaddrinuse|address already in use|port \d+ in use", re.IGNORECASE)
POLL = 0.05  # seconds between two checks whether a server is ready


class ExecutedGuard(subprocess.Popen[bytes]):
    """The guard of a process that exec starts; it is told to stop through its standard input."""

    @property
    def seen_to_end(self) -> bool:
        """Return True once a poll has found that it ended. Take no lock, unlike a poll."""
        return self.returncode is not None

    def ask(self, grace: float | None) -> None:
        """Tell it to stop the process within `grace` s."""
        assert self.stdin is not None
        with contextlib.suppress(OSError, ValueError):  # ValueError: it was asked before
            if grace is not None and not self.stdin.closed:
                self.stdin.write(f"{grace:g}\n".encode())
            self.stdin.close()


class Child:
    """A process under its guard; ends with this process, whatever ends this process. Output goes to `log`, appended.

    `forks`: what forks it where that is possible; exec starts it otherwise.
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
                [sys.executable, "-I", "-S", str(GUARD), str(self._grace), *self._command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self._env,
                start_new_session=True,  # a Ctrl-C in the terminal is for the launcher alone
            )
        return guard, log_start

    def start_again(self) -> None:
        """Start the same command once more, of a server that has ended; returns before it is ready."""
        self._guard, self._log_start = self._start()
        self._server = None

    @property
    def alive(self) -> bool:
        """Whether the server still runs."""
        return self._guard.poll() is None

    @property
    def status(self) -> int | None:
        """The exit status of the server (128 + n by signal n); None while it runs."""
        return self._guard.poll()

    def output(self) -> str:
        """Return what the server has printed since this start, of much the end."""
        with self.log.open("rb") as stream:
            stream.seek(max(self._log_start, stream.seek(0, 2) - READ))
            return stream.read(READ).decode(errors="replace")

    def last_lines(self) -> str:
        """The last lines that the server printed, indented, for an error message."""
        lines = [line.rstrip()[:400] for line in self.output().splitlines() if line.strip()]
        return "\n".join(f"    {line}" for line in lines[-TAIL_LINES:]) or "    (it printed nothing)"

    def death(self) -> str:
        """One message about a server that ended without being asked: its status, its log, its last lines."""
        status = explain_status(self._guard.poll())
        return f"{self.name} ended with status {status}; the end of {self.log}:\n{self.last_lines()}"

    def server(self) -> psutil.Process | None:
        """The process below the guard; None when it is gone, or has not begun."""
        if self._server is None:  # looked for once: psutil reads the parents of all of the machine's processes for it
            with contextlib.suppress(psutil.Error):
                self._server = next(iter(psutil.Process(self._guard.pid).children()), None)
        return self._server if self._server is not None and self._server.is_running() else None

    def wait_until(self, ready: Callable[[], bool], timeout: float) -> None:
        """Return once `ready()` holds. Raises BrokerError when the server dies or `timeout` seconds pass first."""
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
        """Begin stopping without waiting, so that several servers can stop at the same time.

        `grace`: s until SIGKILL, where it is to be another than was said at the start.
        """
        if grace is not None:
            self._grace = grace
        self._guard.ask(grace)

    def stop(self) -> None:
        """SIGTERM, then SIGKILL after the grace time. Safe to call twice; returns within the grace time and 5 s."""
        self.ask_to_stop()
        try:
            self._guard.wait(timeout=self._grace + 4)
        except subprocess.TimeoutExpired:  # a guard that hangs, e.g. stopped by SIGSTOP
            _kill_tree(self._guard.pid)
            self._guard.wait(timeout=1)

    def kill_at_once(self) -> None:
        """Send SIGKILL to the server and to all that it started, and wait for nothing: for a signal's handler.

        What the handler has interrupted may hold the lock that a wait would take.
        """
        if not self._guard.seen_to_end:
            _kill_tree(self._guard.pid)

    def kill(self) -> None:
        """SIGKILL to the server and to all that it started, without asking; returns once they are gone."""
        if self.alive:  # the system may have given the number of one that has ended to another
            _kill_tree(self._guard.pid)
        self._guard.wait()


def explain_status(status: int | None) -> str:
    """An exit status as text: of one that a signal made (128 + n), the signal's name."""
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


def free_port() -> int:
    """A TCP port that nothing on the loopback address used a moment ago; another process may still take it first."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def listens(port: int) -> bool:
    """Whether anything accepts connections at `port` on loopback."""
    try:
        socket.create_connection((LOOPBACK, port), timeout=1.0).close()
    except OSError:
        return False
    return True


class Server(Protocol):
    """A server that was begun."""

    def wait_until_ready(self) -> None:
        """Return once it answers. Raises BrokerError when it does not."""

    def stop(self) -> None:
        """Stop what was begun; nothing of it is needed any more."""


S = TypeVar("S", bound=Server)


class Starting(Generic[S]):
    """A server that boots, at the port asked for or at a free one; its beginner may do something else meanwhile.

    `begin(port)` starts its processes and returns at once. Raises ConfigurationError when the `port` is taken.
    """

    def __init__(self, begin: Callable[[int], S], port: int | None, name: str) -> None:
        if port is not None:
            require_free(port, name)
        self._begin, self._attempts = begin, PORT_ATTEMPTS if port is None else 1
        self._server = begin(free_port() if port is None else port)

    def finish(self) -> S:
        """The server, once it answers: at another port when someone else took that one meanwhile.

        Raises BrokerError, and stops it, when it does not.
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
        """Wait for it no longer."""
        self._server.stop()


def require_free(port: int, server: str) -> None:
    """Raises ConfigurationError, naming the holder where it can be seen, when `port` on loopback is taken."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a closed connection's leftovers do not count
        try:
            probe.bind((LOOPBACK, port))
        except OSError as error:
            raise ConfigurationError(
                f"port {port}, asked for {server}, cannot be used{_holder(port)} ({error.strerror}); "
                "name another port, or none to have a free one picked"
            ) from None


def _holder(port: int) -> str:
    """ " by PROGRAM (process PID)" where the system tells this user, else nothing."""
    with contextlib.suppress(psutil.Error, OSError):
        for connection in psutil.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN and port in connection.laddr and connection.pid:
                return f": it is held by {psutil.Process(connection.pid).name()} (process {connection.pid})"
    return ""


def private_folder(path: Path) -> Path:
    """`path`, made if need be, readable by this user alone: it will hold passwords."""
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o700)
    return path


def write_secret(path: Path, text: str) -> None:
    """Write a file that only this user can read, from its first byte on."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
