"""Roles started by hand on the session's servers, as on machines of their own."""

from __future__ import annotations

import json
from pathlib import Path

from support.launched import Launched
from workers.servers import Servers

PATIENCE = 120.0  # s for a role to end by itself; only a test that hangs reaches it


class Roles:
    """The processes of one run; `close` ends those that still run."""

    def __init__(self, servers: Servers, folder: Path, run: str) -> None:
        self._environment = {**servers.environment(), "OMP_NUM_THREADS": "1"}
        self._folder, self._settings = folder, (f"run={run}", f"folder={folder}", "trial=t", "actors=1")
        self._started: list[Launched] = []

    def start(self, role: str, *overrides: str) -> Launched:
        log, words = self._folder / f"by-hand-{len(self._started)}.log", (*self._settings, *overrides)
        started = Launched(log, f"workers.{role}", *words, given=self._environment)
        self._started.append(started)
        return started

    def ended(self, started: Launched) -> str:
        """Wait until a process ends with status 0; return its log."""
        try:
            assert started.wait(PATIENCE) == 0, started.output
        except AssertionError as error:
            error.add_note("all logs:\n" + "\n".join(f"{one.log.name}:\n{one.output}" for one in self._started))
            raise
        return started.output

    def outcome(self) -> dict[str, object]:
        return dict(json.loads((self._folder / "cartpole" / "t" / "outcome.json").read_text()))

    def close(self) -> None:
        for started in self._started:
            started.process.kill()
            started.process.wait()
