"""The launcher's children: started with a log file each, watched, restarted a bounded number of times."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from warren.errors import WarrenError
from workers.servers.process import Child

GRACE = 8.0  # s that a role has to finish what it holds after being told to stop
FAREWELL = (
    3.0  # s that a child that ended with status 0 is left alone: the run may be over, and the learner about to end
)
TERMINATED = 143  # exit status of a child that SIGTERM found still importing, as shells have it
CALM = 60.0  # s after which a child's earlier deaths are forgiven
# A child reads the run folder's configuration: Hydra must add no folder and no log of its own there either.
HYDRA_QUIET = ("hydra.run.dir=.", "hydra.output_subdir=null", "hydra/job_logging=none", "hydra/hydra_logging=none")


@dataclass
class Managed:
    """One role's process. `needed`: the run is over when it ends with status 0 (the learner).

    `may_end`: status 0 means that its work is done. `last`: stopped only after the others, which call it until then.
    """

    name: str
    command: Sequence[str]
    log: Path
    needed: bool = False
    may_end: bool = False
    last: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    leaving: bool = False  # was told to, so it is not restarted
    child: Child | None = None
    deaths: int = 0  # lately
    restarts: int = 0  # ever
    started_at: float = 0.0
    done: bool = False
    retry_at: float = field(default=0.0)
    ended_at: float = 0.0  # when it was first seen to have ended with status 0


class Supervisor:
    """Starts and watches role processes; `say` prints a line for the person at the terminal."""

    def __init__(self, folder: Path, environment: dict[str, str], restarts: int, say: Callable[[str], None]) -> None:
        self._folder, self._environment, self._restarts, self._say = folder, environment, restarts, say
        self.children: list[Managed] = []

    def add(
        self, role: str, name: str, *overrides: str, needed: bool = False, may_end: bool = False, last: bool = False
    ) -> None:
        """Start `python -m workers.ROLE` on the run folder's configuration, as `name`."""
        command = [
            *(sys.executable, "-m", f"workers.{role}"),
            *("--config-dir", str(self._folder.resolve()), "--config-name", "config"),
            *HYDRA_QUIET,
            *overrides,
        ]
        self.launch(Managed(name, command, self._folder / "logs" / f"{name}.log", needed, may_end, last))

    def launch(self, managed: Managed) -> Managed:
        """Start a process that is no role of Warren's own, and look after it in the same way."""
        managed.log.parent.mkdir(exist_ok=True)
        self.children.append(managed)
        self._start(managed)
        return managed

    def poll(self) -> bool:
        """Look after every child: restart who died. True when the one that is needed has finished its work.

        Raises WarrenError when a child has died more often than allowed; its message holds the last lines.
        """
        for managed in list(self.children):
            assert managed.child is not None
            if managed.leaving:
                self._see_off(managed)
                continue
            if managed.done or managed.child.alive:
                continue
            if managed.retry_at == 0.0:
                if managed.child.status == 0 and managed.needed:
                    managed.done = True
                    return True
                if managed.child.status == 0 and managed.may_end:
                    managed.done = True
                    self._say(f"{managed.name} has done its work")
                    continue
                if managed.child.status == 0:
                    managed.ended_at = managed.ended_at or time.monotonic()
                if managed.child.status != 0 or time.monotonic() - managed.ended_at > FAREWELL:
                    self._report(managed)
            elif time.monotonic() >= managed.retry_at:
                managed.restarts += 1
                self._start(managed)
        return False

    def remove(self, name: str) -> None:
        """Tell a child to finish what it holds within GRACE s and leave; `poll` says when it has."""
        (managed,) = (managed for managed in self.children if managed.name == name and not managed.leaving)
        assert managed.child is not None
        managed.leaving = True
        managed.child.ask_to_stop()

    def alive(self) -> int:
        """How many children run."""
        return sum(managed.child is not None and managed.child.alive for managed in self.children)

    def processes(self) -> list[Child]:
        """The processes that were started last, one a child."""
        return [managed.child for managed in self.children if managed.child is not None]

    def stop(self) -> None:
        """Tell all to stop at the same time, wait; who has not stopped within the grace time is killed."""
        for last in (False, True):
            children = [managed.child for managed in self.children if managed.child and managed.last is last]
            for child in children:
                child.ask_to_stop()
            for child in children:
                child.stop()

    def _see_off(self, managed: Managed) -> None:
        assert managed.child is not None
        if not managed.child.alive:
            self.children.remove(managed)
            late = managed.child.status not in (0, TERMINATED) and managed.retry_at == 0.0
            self._say(f"{managed.name} has left{f' with status {managed.child.status}' if late else ''}")

    def _start(self, managed: Managed) -> None:
        environment = {**os.environ, **self._environment, **managed.environment}
        managed.child = Child(managed.name, managed.command, managed.log, environment, GRACE)
        managed.started_at, managed.retry_at, managed.ended_at = time.monotonic(), 0.0, 0.0

    def _report(self, managed: Managed) -> None:
        assert managed.child is not None
        if time.monotonic() - managed.started_at > CALM:
            managed.deaths = 0
        managed.deaths += 1
        what = managed.child.death()
        if managed.deaths > self._restarts:
            raise WarrenError(
                f"{what}\n{managed.name} died {managed.deaths} times; giving up (restarts={self._restarts})"
            )
        wait = min(0.25 * 2 ** (managed.deaths - 1), 8.0)
        managed.retry_at = time.monotonic() + wait
        self._say(f"{what}\nrestarting {managed.name} ({managed.deaths} of {self._restarts}) in {wait:g} s")
