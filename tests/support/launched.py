"""A launcher as a person starts it: its output, its end, and waiting for what it does."""

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

PATIENCE = 120.0  # s for anything to happen; a bound against hanging, not an expectation


class Launched:
    """`python -m MODULE WORDS`, printing into `log`; `given` is added to an environment without Warren's variables."""

    def __init__(self, log: Path, module: str, *arguments: str, given: Mapping[str, str] = {}) -> None:
        self.log = log
        kept = {name: value for name, value in os.environ.items() if not name.startswith("WARREN_")}
        with log.open("a") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**kept, **given},
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    @property
    def output(self) -> str:
        """Everything printed so far."""
        return self.log.read_text()

    def until(self, condition: Callable[[], Any], timeout: float = PATIENCE) -> Any:
        """Return `condition()`'s value once it is true; fail when the launcher ends or `timeout` s pass first."""
        deadline = time.monotonic() + timeout
        while True:
            ended = self.process.poll()
            if result := condition():
                return result
            assert ended is None, f"the run ended with {ended}:\n{self.output}"
            assert time.monotonic() < deadline, f"nothing within {timeout:g} s:\n{self.output}"
            time.sleep(0.05)

    def children(self, belongs: Callable[[list[str]], bool]) -> list[psutil.Process]:
        """The living processes below it whose command line `belongs`, guards left out."""
        found = []
        for process in psutil.Process(self.process.pid).children(recursive=True):
            try:
                line = process.cmdline()
            except psutil.Error:
                continue
            if "guard.py" not in " ".join(line) and belongs(line):
                found.append(process)
        return found

    def wait(self, timeout: float = 180.0) -> int:
        """The exit status."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {timeout:g} s:\n{self.output}") from None
