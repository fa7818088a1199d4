"""The health of a run: its processes, its servers, its stalls and their causes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from workers.launch.monitor import Health, Monitor
from workers.launch.processes.supervisor import Supervisor
from workers.launch.watching.server_watch import ServerWatch
from workers.launch.watching.stalls import Answering, Stalls, explain

HEALTH_EVERY = 1.0  # s between checks


class HealthCheck:
    """The checks of a run's health, HEALTH_EVERY s apart."""

    def __init__(self, app: Any, monitor: Monitor, supervisor: Supervisor, watch: ServerWatch) -> None:
        self._monitor, self._supervisor, self._watch = monitor, supervisor, watch
        self._stalls, self._answering = Stalls(), Answering(app, self._expected_to_answer)
        self._newest, self._due = Health(""), 0.0
        self.steps: Mapping[str, int] = {}  # player -> steps, at the newest check
        self.excused: Mapping[str, str] = {}  # players that rightly make no steps

    def start(self) -> None:
        """Start to ask roles for a sign of life during stalls."""
        self._answering.start()

    def stop(self) -> None:
        """Stop asking; does not wait."""
        self._answering.stop()

    def look(self, note: str) -> Health:
        """Return the newest health, checked again if that is due; `note`: what the launcher waits for, or ""."""
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + HEALTH_EVERY
            self._newest = self._check(note)
        return self._newest

    def _check(self, note: str) -> Health:
        steps, excused = self._monitor.steps(), self._monitor.excused()
        self.steps, self.excused = steps, excused
        standing = self._stalls.poll(steps)
        troubles = [*self._watch.away(), *self._supervisor.troubles()]
        self._answering.want(any(player not in excused for player in standing))
        troubled = " ".join(troubles)
        silent = [name for name in self._answering.silent if name not in troubled]
        troubles += [f"{name} does not answer" for name in silent]
        stalls = explain(standing, excused, troubles, self._watch.depths, begun=sum(steps.values()) > 0)
        notes = [*stalls, *(() if stalls else troubles), *filter(None, [note])]
        return Health(self._supervisor.standing(), notes)

    def _expected_to_answer(self) -> list[str]:
        return [child.name for child in self._supervisor.children if child.alive and child.spec.answers]
