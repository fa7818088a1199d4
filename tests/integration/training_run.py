"""A training run as a person starts it, watched from outside through its run folder and its processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

PATIENCE = 120.0  # s for anything to happen; a bound against hanging, not an expectation


class TrainingRun:
    """`python -m workers.train` on servers of its own choice, or on those whose URLs are given."""

    def __init__(
        self,
        folder: Path,
        *overrides: str,
        broker_url: str | None = None,
        redis_url: str | None = None,
        trial: str = "t",
    ) -> None:
        self.folder = folder / "project" / trial
        environment = {k: v for k, v in os.environ.items() if not k.startswith("WARREN_")}
        if broker_url is not None:
            environment |= {"WARREN_BROKER_URL": broker_url, "WARREN_REDIS_URL": redis_url or broker_url}
        self.log = folder / f"{trial}.log"
        resumes = any(override.startswith("resume=") for override in overrides)
        place = () if resumes else (f"folder={folder}", "project=project", f"trial={trial}")
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "workers.train", *place, *overrides],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )

    def __enter__(self) -> TrainingRun:
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

    @property
    def name(self) -> str:
        """The run's name on the servers."""
        self.until(lambda: "run name" in self.output)
        return next(line.split()[-1] for line in self.output.splitlines() if line.startswith("run name"))

    def until(self, condition: Callable[[], Any], timeout: float = PATIENCE) -> Any:
        """What `condition()` returns once it is true; fails when the run ends or `timeout` s pass first."""
        deadline = time.monotonic() + timeout
        while True:
            ended = self.process.poll() is not None
            if result := condition():
                return result
            assert not ended, f"the run ended with {self.process.returncode}:\n{self.output}"
            assert time.monotonic() < deadline, f"nothing within {timeout} s:\n{self.output}"
            time.sleep(0.05)

    def metrics(self) -> list[dict[str, Any]]:
        """Every update so far."""
        path = self.folder / "metrics.jsonl"
        if not path.exists():
            return []
        return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]

    def after_updates(self, count: int) -> int:
        """Wait until `count` more updates have been made; the number made in all."""
        target = len(self.metrics()) + count
        self.until(lambda: len(self.metrics()) >= target)
        return len(self.metrics())

    def role(self, name: str) -> psutil.Process:
        """The process of `learner` or `actor-0` (not its guard)."""
        module, _, index = name.partition("-")

        def find() -> psutil.Process | None:
            for process in psutil.Process(self.process.pid).children(recursive=True):
                try:
                    line = process.cmdline()
                except psutil.Error:
                    continue
                wanted = not index or f"actor_id={index}" in line
                if f"workers.{module}" in line and "guard.py" not in " ".join(line) and wanted:
                    return process
            return None

        found: psutil.Process = self.until(find)
        return found

    def wait(self, timeout: float = 180.0) -> int:
        """The exit status."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {timeout} s:\n{self.output}") from None
