"""A launcher as a user starts it: its output, its end, and waits for conditions."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import psutil

from support.python_forks import ForkedPython, forks, may_fork

Process = subprocess.Popen[bytes] | ForkedPython
PATIENCE = 120.0  # s; only a test that hangs reaches it


class Launched:
    """`python -m MODULE WORDS`, printing into `log`; `given` is added to an environment without Warren's variables.

    It is forked from a process with its imports done (see python_forks.py), which saves three seconds per run.
    `executed`: it is executed instead, as a user does.
    """

    def __init__(
        self, log: Path, module: str, *arguments: str, given: Mapping[str, str] = {}, executed: bool = False
    ) -> None:
        self.log = log
        self.process = start(module, *arguments, log=log, given=without_warren() | {**given}, executed=executed)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    @property
    def output(self) -> str:
        """Return everything printed so far."""
        return self.log.read_text()

    def until(self, condition: Callable[[], Any], timeout: float = PATIENCE) -> Any:
        """Return `condition()`'s value once it is true; fail if the launcher ends or `timeout` s pass first."""
        deadline = time.monotonic() + timeout
        while True:
            ended = self.process.poll()
            if result := condition():
                return result
            assert ended is None, f"the run ended with {ended}:\n{self.output}"
            assert time.monotonic() < deadline, f"nothing within {timeout:g} s:\n{self.output}"
            time.sleep(0.05)

    def children(self, belongs: Callable[[list[str]], bool]) -> list[psutil.Process]:
        """Return its living descendants whose command line `belongs`, without guards."""
        found = []
        for process in psutil.Process(self.process.pid).children(recursive=True):
            try:
                line = process.cmdline()
            except psutil.Error:
                continue
            if line and "guard.py" not in " ".join(line) and belongs(line):  # an ending process has none
                found.append(process)
        return found

    def wait(self, timeout: float = 280.0) -> int:
        """Wait for its end; return the exit status. Raises AssertionError after `timeout` s."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {timeout:g} s:\n{self.output}") from None


def without_warren() -> dict[str, str]:
    """Return this process's environment without Warren's variables."""
    return {name: value for name, value in os.environ.items() if not name.startswith("WARREN_")}


def start(module: str, *words: str, log: Path, given: Mapping[str, str], executed: bool = False) -> Process:
    """Start `python -m module words`, printing into `log`, with the environment `given`, in a session of its own.

    `module` may be the file of a script. It is forked, unless `executed`, or a variable is given that is read early.
    """
    if may_fork(given) and not executed:
        return forks().start(module, words, log, given)
    line = [sys.executable, *([] if module.endswith(".py") else ["-m"]), module, *words]
    with log.open("a") as output:
        return subprocess.Popen(line, stdout=output, stderr=subprocess.STDOUT, env={**given}, start_new_session=True)


def command(
    module: str, *words: str, given: Mapping[str, str] = {}, typed: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run `python -m module words` to its end; `given` is added to an environment without Warren's variables.

    It is forked as a launcher is, unless a variable that is read early is given.
    """
    environment = without_warren() | {**given}
    if may_fork(environment):
        return forks().run(module, words, environment, typed)
    line = [sys.executable, "-m", module, *words]
    return subprocess.run(
        line, env=environment, input=typed, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
