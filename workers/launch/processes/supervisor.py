"""The launcher's children: started with a log file each, watched, restarted a bounded number of times."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from warren.errors import WarrenError
from workers.config import staying
from workers.config.roles import Done
from workers.launch.processes.deaths import MOST_WAIT, Action, Death, History, decide
from workers.launch.processes.failure import Failure, failure_in, failure_of
from workers.launch.processes.failure_log import Entry, FailureLog
from workers.launch.processes.logins import Logins
from workers.launch.spec import GRACE, ProcessSpec
from workers.servers.forks import Forks
from workers.servers.process import Child, explain_status

ENDED_FOR = 3.0  # s before a child that ended with status 0 is restarted: the learner may be about to end the run
TERMINATED = 143  # exit status of a child that SIGTERM found still importing, as shells have it


@dataclass
class Managed:
    """A supervised process and its history."""

    spec: ProcessSpec
    rank: int
    log: Path
    grace: float = GRACE
    leaving: bool = False  # it was told to leave, so it is not restarted
    child: Child | None = None
    deaths: int = 0  # since it was last calm
    restarts: int = 0  # in all
    started_at: float = 0.0
    retry_at: float = 0.0  # time of its next start; 0.0: none is due
    ended_at: float = 0.0  # time at which its end with status 0 was first seen
    done: bool = False
    failure: Failure | None = None  # at its last death
    given_up: str = ""  # why it is not started again

    @property
    def name(self) -> str:
        """Return the name of the process and of its log."""
        return self.spec.name(self.rank)

    @property
    def alive(self) -> bool:
        """Return whether the process runs."""
        return self.child is not None and self.child.alive


class Supervisor:
    """The launcher's processes, started and watched; `say` prints a line on the terminal.

    `excused` returns whether the servers are, or were just now, away: a process that dies then has not failed by
    itself. `away` returns whether they are away now: nothing is started until they are back. `forks`: forks the
    processes that can be forked. `failures`: keeps the cause of every death.
    """

    def __init__(
        self,
        folder: Path,
        environment: dict[str, str],
        restarts: int,
        say: Callable[[str], None],
        excused: Callable[[], bool] = lambda: False,
        away: Callable[[], bool] = lambda: False,
        forks: Forks | None = None,
        failures: FailureLog | None = None,
        logins: Logins | None = None,
    ) -> None:
        self._failures = failures or FailureLog(folder, say)
        self._folder, self._environment, self._restarts, self._say = folder, environment, restarts, say
        self._excused, self._away, self._forks, self._logins = excused, away, forks, logins
        self.children: list[Managed] = []

    def start(self, spec: ProcessSpec, rank: int) -> Managed:
        """Start and supervise one process of `spec`. Raises WarrenError if the system cannot start it."""
        log = self._folder / "logs" / f"{spec.name(rank)}.log"
        log.parent.mkdir(exist_ok=True)
        managed = Managed(spec, rank, log, spec.grace)
        self.children.append(managed)
        try:
            self._start(managed)
        except OSError as error:
            self.children.remove(managed)
            raise WarrenError(f"{managed.name} could not be started: {error}") from error
        return managed

    def poll(self) -> bool:
        """Poll every child, rotate its log, restart the dead; return whether a child whose end is the run's has ended.

        Raises WarrenError, with the last lines of its log, when a critical child has died too often.
        """
        for managed in list(self.children):
            assert managed.child is not None
            managed.child.rotate()
            if managed.leaving:
                self._check_leaving(managed)
            elif not managed.done and not managed.given_up and not managed.child.alive and self._ended(managed):
                return True
        return False

    def _ended(self, managed: Managed) -> bool:
        """Handle a child that has ended; return whether the run is over with it."""
        assert managed.child is not None
        if managed.retry_at:
            if time.monotonic() >= managed.retry_at and not self._away():
                self._start_again(managed)
            return False
        if managed.child.status == 0:
            if managed.spec.done is not Done.restart:
                managed.done = True
                if managed.spec.done is Done.once:
                    self._say(f"{managed.name} has done its work")
                return managed.spec.done is Done.run
            managed.ended_at = managed.ended_at or time.monotonic()
            if time.monotonic() - managed.ended_at <= ENDED_FOR:
                return False
        self._report(managed)
        return False

    def remove(self, name: str) -> None:
        """Tell a child to finish its work within its grace and leave; `poll` reports when it has."""
        (managed,) = (managed for managed in self.children if managed.name == name and not managed.leaving)
        assert managed.child is not None
        managed.leaving = True
        managed.child.ask_to_stop(managed.grace)

    def alive(self) -> int:
        """Return the number of children that run."""
        return sum(managed.alive for managed in self.children)

    def standing(self) -> str:
        """Return as text how many children are alive, of those that should be, and how many are done."""
        wanted = [managed for managed in self.children if not managed.done and not managed.leaving]
        done = sum(managed.done for managed in self.children)
        alive = f"{sum(managed.alive for managed in wanted)} of {len(wanted)} alive"
        return f"{alive}, {done} done" if done else alive

    def troubles(self) -> list[str]:
        """Return a line for each child that is suspended, down or given up."""
        found = []
        for managed in self.children:
            if managed.given_up:
                found.append(f"{managed.name} is down: {managed.given_up}")
            elif managed.retry_at and not managed.leaving:
                why = f": {managed.failure}" if managed.failure else ""
                found.append(f"{managed.name} is being restarted{why}")
            elif managed.alive and _is_stopped(managed):
                found.append(f"{managed.name} is stopped (SIGSTOP); kill -CONT lets it go on")
        return found

    def processes(self) -> list[Child]:
        """Return the current process of each child."""
        return [managed.child for managed in self.children if managed.child is not None]

    def stop(self) -> None:
        """Stop all children, one stop order after another; kill those that take longer than their grace."""
        for order in sorted({managed.spec.stop_order for managed in self.children}):
            stopping = [managed for managed in self.children if managed.spec.stop_order == order and managed.child]
            for managed in stopping:
                assert managed.child is not None
                managed.child.ask_to_stop(managed.grace)
            for managed in stopping:
                assert managed.child is not None
                managed.child.stop()

    def _check_leaving(self, managed: Managed) -> None:
        assert managed.child is not None
        if not managed.child.alive:
            self.children.remove(managed)
            late = managed.child.status not in (0, TERMINATED) and managed.retry_at == 0.0
            status = explain_status(managed.child.status)
            self._say(f"{managed.name} has left{f' with status {status}' if late else ''}")

    def _start(self, managed: Managed) -> None:
        spec = managed.spec
        numbers = {"WARREN_RANK": str(managed.rank), "WARREN_NUM": str(spec.num or len(spec.ranks))}
        numbers[staying.VARIABLE] = "no"  # the launcher restarts processes itself
        environment: Mapping[str, str] = {**os.environ, **self._environment, **numbers, **spec.environment}
        if self._logins is not None:
            environment = self._logins.of(spec, environment)
        forks = self._forks if spec.forked else None
        managed.child = Child(managed.name, spec.line(managed.rank), managed.log, environment, managed.grace, forks)
        managed.started_at, managed.retry_at, managed.ended_at = time.monotonic(), 0.0, 0.0

    def _start_again(self, managed: Managed) -> None:
        try:
            self._start(managed)
            managed.restarts += 1
        except OSError as error:  # for now, no memory, processes or open files are left
            managed.retry_at = time.monotonic() + MOST_WAIT
            self._say(f"{managed.name} could not be started: {error}; trying again in {MOST_WAIT:g} s")

    def _report(self, managed: Managed) -> None:
        """Print a death and the time of the restart, or give the process up. Raises WarrenError if it is critical."""
        assert managed.child is not None
        # A child that a signal killed, or that ended well, did not fail by the last error that it printed.
        failed = 0 < (managed.child.status or 0) < 128
        failure = failure_in(managed.child.output()) if failed else None
        what = managed.child.death()
        if (
            failed
            and (failure is None or not failure.where)
            and (elsewhere := failure_of(child.log for child in self.children if child is not managed))
        ):
            what += f"\nthe newest error in your code, in {elsewhere[0]}: {elsewhere[1]}"
        lived = time.monotonic() - managed.started_at
        action = decide(
            Death(managed.name, managed.child.status, lived, failure, self._excused()),
            History(managed.deaths, managed.failure, self._restarts, managed.spec.restart),
        )
        managed.deaths, managed.failure = action.deaths, action.failure
        self._keep(managed, lived, failure, action)
        if action.ends_run:
            raise WarrenError(f"{what}\n{action.text}")
        if action.wait is None:
            managed.given_up = str(action.failure or what)
        else:
            managed.retry_at = time.monotonic() + action.wait
        self._say(f"{what}\n{action.text}")

    def _keep(self, managed: Managed, lived: float, failure: Failure | None, action: Action) -> None:
        """Keep the cause of a death in the run's folder."""
        child = managed.child
        assert child is not None
        cause, where = (failure.error, failure.where) if failure else ("it printed no error", "")
        said = child.last_lines()
        self._failures.add(Entry(managed.name, cause, action.text, child.status, where, round(lived, 1), said))


def _is_stopped(managed: Managed) -> bool:
    assert managed.child is not None
    try:
        process = managed.child.server()
        return process is not None and process.status() == psutil.STATUS_STOPPED
    except psutil.Error:
        return False
