"""Roles started by hand on the session's servers, as on machines of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from workers.servers import Servers

PATIENCE = 120.0  # s for a role to end by itself; a bound against hanging, not an expectation


class Roles:
    """The processes of one run; `close` ends what still runs."""

    def __init__(self, servers: Servers, folder: Path, run: str) -> None:
        self._environment = {**os.environ, **servers.environment(), "OMP_NUM_THREADS": "1"}
        self._folder, self._settings = folder, (f"run={run}", f"folder={folder}", "trial=t", "actors=1")
        self._processes: list[subprocess.Popen[str]] = []

    def start(self, role: str, *overrides: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", f"workers.{role}", *self._settings, *overrides],
            env=self._environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._processes.append(process)
        return process

    def ended(self, process: subprocess.Popen[str]) -> str:
        """The log of a process that has ended by itself and well."""
        _, log = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, log
        return log

    def outcome(self) -> dict[str, object]:
        return dict(json.loads((self._folder / "cartpole" / "t" / "outcome.json").read_text()))

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
