"""Many runs of `python -m MODULE WORDS`, each in a fork of one process that has made the slow imports.

python python_forks.py        takes a job per line: imports the modules that it names, or forks a process for it
"""

from __future__ import annotations

import functools
import gc
import importlib
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import types
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from workers.servers.leaving import leave
from workers.servers.process_title import set_title

PATIENCE = 240  # s for a command; only one that hangs reaches it
HIGHEST = 1 << 20  # above any file descriptor
# Imports of launchers, of the processes that they fork, and of most commands.
COMMON = (
    "workers.config.command_line", "workers.config.validation", "workers.launch.kinds.training",
    "workers.launch.kinds.services_run", "workers.learning.plain", "workers.rollout.actor_process",
    "workers.runtime.trained", "workers.doctor.machine", "torch.utils.tensorboard.writer",
    "billiard.pool", "scipy.optimize", "matplotlib.backends.backend_agg", "matplotlib.figure",
)  # fmt: skip
ROOT = Path(__file__).resolve().parents[2]
PATHS = str(ROOT), str(ROOT / "tests")
# Of the variables that tests set, only these are read after the interpreter's start and the imports.
READ_LATE = ("WARREN_", "PYTHONUNBUFFERED", "OMP_NUM_THREADS", "COLUMNS")
READ_EARLY = {"WARREN_PATIENCE", "WARREN_UNKNOWN_FOR"}


class ForkedPython:
    """A forked process, with the part of subprocess.Popen's interface that tests use."""

    def __init__(self, forks: PythonForks, pid: int) -> None:
        self._forks, self.pid = forks, pid

    @property
    def returncode(self) -> int | None:
        """Return the exit status, -n after signal n; None while it runs, or until `poll` is called."""
        return self._forks.ended.get(self.pid)

    def poll(self) -> int | None:
        """Return the exit status; None while it runs."""
        if self.returncode is None:
            self._forks.listen(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit status and return it. Raises subprocess.TimeoutExpired after `timeout` s."""
        deadline = float("inf") if timeout is None else time.monotonic() + timeout
        while (status := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(f"forked process {self.pid}", timeout or 0.0)
            self._forks.listen(0.05)
        return status

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send it SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it."""
        self.send_signal(signal.SIGKILL)


class PythonForks:
    """The process that forks, and its reports on its forks."""

    def __init__(self) -> None:
        self.ended: dict[int, int] = {}
        self._told, self._begun, self._lock = b"", list[int](), threading.RLock()
        kept = {name: value for name, value in os.environ.items() if not name.startswith("WARREN_")}
        # One thread, like a launcher: forking a process with threads is unsafe.
        environment = {**kept, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(PATHS)}
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, bufsize=0
        )
        self.load(COMMON)

    def load(self, modules: Sequence[str]) -> None:
        """Import these modules for later forks."""
        self._ask({"modules": [*modules]})

    def start(self, module: str, words: Sequence[str], log: Path, given: Mapping[str, str]) -> ForkedPython:
        """Start `python -m module words` in this process's folder with the environment `given`, printing to `log`.

        `module` may be the file of a script.
        """
        log.touch()  # readable at once
        return self._start(module, words, given, output=str(log))

    def run(
        self, module: str, words: Sequence[str], given: Mapping[str, str], typed: str = "", lacking: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run `python -m module words` in this process's folder with the environment `given`, to its end.

        `lacking`: a package that is not installed for it.
        """
        with tempfile.TemporaryDirectory(prefix="python-forks-") as folder:
            files = {name: Path(folder) / name for name in ("input", "output", "errors")}
            files["input"].write_text(typed)
            named = {name: str(file) for name, file in files.items()}
            status = self._start(module, words, given, **named, within=PATIENCE, lacking=lacking).wait()
            output, errors = files["output"].read_text(), files["errors"].read_text()
        return subprocess.CompletedProcess([module, *words], status, output, errors)

    def _start(self, module: str, words: Sequence[str], given: Mapping[str, str], **job: Any) -> ForkedPython:
        job |= {"module": module, "words": [*words], "folder": str(Path.cwd()), "given": dict(given)}
        with self._lock:
            self._ask(job)
            while not self._begun:
                self.listen(0.05)
            return ForkedPython(self, self._begun.pop())

    def _ask(self, job: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(job).encode() + b"\n")

    def listen(self, timeout: float) -> None:
        """Take the reports that arrive within `timeout` s."""
        assert self._process.stdout is not None
        with self._lock:
            if select.select([self._process.stdout], [], [], timeout)[0]:
                part = os.read(self._process.stdout.fileno(), 1 << 16)
                assert part, "the process that forks has ended"
                *lines, self._told = (self._told + part).split(b"\n")
                for line in lines:
                    pid, *status = map(int, line.split())
                    if status:
                        self.ended[pid] = status[0]
                    else:
                        self._begun.append(pid)


def may_fork(given: Mapping[str, str]) -> bool:
    """Return whether a fork with the environment `given` behaves like an executed process."""
    # Other folders may have a sitecustomize.py, which only a new interpreter runs.
    here = {*given.get("PYTHONPATH", "").split(os.pathsep)} <= {"", *PATHS}
    differing = {name for name in given if given[name] != os.environ.get(name)} - ({"PYTHONPATH"} if here else set())
    return all(name.startswith(READ_LATE) for name in differing) and not READ_EARLY & differing


@functools.cache
def forks() -> PythonForks:
    """Return the session's process that forks; it ends when the session does and closes its standard input."""
    return PythonForks()


def become(job: dict[str, Any]) -> NoReturn:
    """Turn this fork into its job's process, as if just executed."""
    os.setsid()
    output = job["output"]
    os.dup2(os.open(job.get("input", os.devnull), os.O_RDONLY), 0)
    for number, file in ((1, output), (2, job.get("errors", output))):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666), number)
    os.closerange(3, HIGHEST)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(job["folder"])
    os.environ.clear()
    os.environ.update(job["given"])
    module, script = job["module"], job["module"].endswith(".py")
    set_title(" ".join([sys.executable, *([] if script else ["-m"]), module, *job["words"]]))
    if job["given"].get("PYTHONUNBUFFERED"):
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    sys.modules["numpy"].random.seed()  # `random` reseeds itself
    importlib.invalidate_caches()
    sys.argv, sys.path[0] = [module, *job["words"]], str(Path(module).parent) if script else job["folder"]
    # Launchers import the verification and also run it as a module.
    warnings.filterwarnings("ignore", message=".* found in sys.modules after import", category=RuntimeWarning)
    if lacking := job.get("lacking"):
        assert lacking not in sys.modules, f"{lacking} is imported already"
        sys.modules[lacking] = None  # type: ignore[assignment]
    signal.alarm(job.get("within", 0))
    code: Any = 0
    try:
        if script:
            main = sys.modules["__main__"] = types.ModuleType("__main__")
            main.__dict__["__file__"] = module
            exec(compile(Path(module).read_bytes(), module, "exec"), main.__dict__)
        else:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        code = ended.code
    leave(code)


def main() -> None:
    """Read jobs and do them, and report ended children, until standard input is closed."""
    os.environ.update({**os.environ})  # setting the title overwrites the original environment
    woken, wake = os.pipe()
    for end in (woken, wake):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in the terminal is for pytest
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    read = b""
    while True:
        ready, _, _ = select.select([0, woken], [], [])
        if woken in ready:
            os.read(woken, 1 << 10)
            with suppress(ChildProcessError):
                while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                    tell(ended[0], os.waitstatus_to_exitcode(ended[1]))
        if 0 in ready:
            part = os.read(0, 1 << 16)
            if not part:
                return
            *lines, read = (read + part).split(b"\n")
            for line in lines:
                do(json.loads(line))


def do(job: dict[str, Any]) -> None:
    """Import the modules of a job, or fork for it."""
    if "modules" in job:
        for module in job["modules"]:
            importlib.import_module(module)
        gc.collect()
        gc.freeze()
    elif child := os.fork():
        tell(child)
    else:
        become(job)


def tell(*numbers: int) -> None:
    """Write a line of numbers to the parent process."""
    os.write(1, " ".join(map(str, numbers)).encode() + b"\n")


if __name__ == "__main__":
    main()
