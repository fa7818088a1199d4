"""One host's share of a run from a file: its service processes, then its environments, watched and restarted."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from warren.errors import WarrenError
from workers.launch.membership import Meeting
from workers.launch.run_file import Share
from workers.launch.supervisor import Managed, Supervisor
from workers.ui.run_view import Standing

UNKNOWN_FOR = 10  # s that an environment's call waits for a service that no worker has ever offered
PATIENCE = 60  # s that a call waits while its services have no worker: long enough for a restart that imports torch
READY_WITHIN = 180.0  # s from the start of a service process until it serves


class Crew:
    """Starts a share of a run. `suffix`: what tells the names of these processes from those of another host's."""

    def __init__(
        self,
        shares: Sequence[Share],
        folder: Path,
        environment: dict[str, str],
        meeting: Meeting,
        restarts: int,
        log_level: str,
        suffix: str,
        say: Callable[[str], None],
    ) -> None:
        self._shares, self._folder, self._meeting = shares, folder, meeting
        self._log_level, self._suffix = log_level, suffix
        given = {
            "PYTHONUNBUFFERED": "1",
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),  # the processes share this machine's cores
            "WARREN_PATIENCE": os.environ.get("WARREN_PATIENCE", str(PATIENCE)),
            "WARREN_FOLDER": str(folder.resolve()),
        }
        self.supervisor = Supervisor(folder, {**environment, **given}, restarts, say)
        self._processes: dict[str, list[Managed]] = {share.entry.name: [] for share in shares}
        self._serving: set[str] = set()
        self._started_at = time.monotonic()
        self.playing = False  # environments have been started

    def start(self) -> None:
        """Start the services."""
        for share in self._shares:
            if not share.entry.finite:
                self._launch(share)

    def play(self) -> None:
        """Start the environments."""
        self.playing = True
        for share in self._shares:
            if share.entry.finite:
                self._launch(share)

    def ready(self) -> bool:
        """Whether all services of this share are served. Raises WarrenError when one has not begun for too long."""
        wanted = {managed.name for share, managed in self._each() if not share.entry.finite}
        if not wanted <= self._serving:
            self._serving = self._meeting.serving()
        missing = sorted(wanted - self._serving)
        if missing and time.monotonic() - self._started_at > READY_WITHIN:
            raise WarrenError(f"{', '.join(missing)} did not begin to serve within {READY_WITHIN:g} s; see the logs")
        return not missing

    def left(self) -> int:
        """Environments that are not done."""
        done = sum(managed.done for share, managed in self._each() if share.entry.finite)
        return sum(share.count for share in self._shares if share.entry.finite) - done

    def standings(self) -> list[Standing]:
        """Every entry of this share."""
        return [self._standing(share) for share in self._shares]

    def _standing(self, share: Share) -> Standing:
        processes = self._processes[share.entry.name]
        alive = sum(one.child is not None and one.child.alive for one in processes)
        done = sum(one.done for one in processes)
        restarts = sum(one.restarts for one in processes)
        last = _last_line(processes[0].log) if share.entry.finite and processes else ""
        return Standing(share.entry.name, share.count, alive, done, restarts, last)

    def _each(self) -> list[tuple[Share, Managed]]:
        return [(share, managed) for share in self._shares for managed in self._processes[share.entry.name]]

    def _launch(self, share: Share) -> None:
        entry = share.entry
        for rank in range(share.first, share.first + share.count):
            name = f"{entry.name}-{rank}{self._suffix}"
            module = "workers.script" if entry.finite else "workers.serve"
            command = [sys.executable, "-m", module, str(entry.place), "--kwargs", json.dumps(dict(entry.kwargs))]
            if not entry.finite:
                command += ["--name", entry.name, "--process", name, "--rank", str(rank)]
                command += ["--log-level", self._log_level]
            numbers = {"WARREN_RANK": str(rank), "WARREN_NUM": str(entry.num)}
            if entry.finite:
                numbers["WARREN_UNKNOWN_FOR"] = str(UNKNOWN_FOR)
            log = self._folder / "logs" / f"{name}.log"
            ends = entry.finite  # and calls the services until then
            managed = Managed(name, command, log, may_end=ends, last=not ends, environment=numbers)
            self._processes[entry.name].append(self.supervisor.launch(managed))


def _last_line(log: Path) -> str:
    """What was printed last, cut to a line of a terminal."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - 2048))
            lines: list[Any] = [line for line in stream.read().decode(errors="replace").splitlines() if line.strip()]
    except OSError:
        return ""
    return str(lines[-1])[:120] if lines else ""
