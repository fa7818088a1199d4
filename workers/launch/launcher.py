"""The launcher of every run: locks the folder, finds servers, starts processes, supervises all, ends and removes it.

    with RunFolder.take(spec.folder) as folder:
        outcome = Launcher(spec, folder, view, make_monitor).run()

What is particular to training, a league or a file of services is in its monitor (monitor.py) and in its spec.
"""

from __future__ import annotations

import json
import socket
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import redis

from tasks.admin.cleanup import Depths
from tasks.app import create_app
from tasks.topology import Topology
from warren import redis_client
from warren.errors import WarrenError
from workers import doctor, servers
from workers.launch.folder import COUNTS, OUTCOME, RunFolder
from workers.launch.hosts.membership import Membership, Superseded
from workers.launch.hosts.places import Following, Leading
from workers.launch.hosts.scaling import Scaling
from workers.launch.monitor import Context, Health, Monitor
from workers.launch.processes.interrupts import KILLED, Interrupts
from workers.launch.processes.supervisor import Supervisor
from workers.launch.spec import RunSpec, ServersSpec
from workers.launch.watching.server_watch import ServerWatch
from workers.launch.watching.stalls import Answering, Stalls, explain
from workers.servers.forks import Forks

POLL_EVERY = 0.1  # s between polls of children, figures and keys pressed
BEAT_EVERY = 1.0  # s between polls of the other launchers, and renewals of the lease
HEALTH_EVERY = 1.0  # s between health checks
READY_WITHIN = 180.0  # s from the start of a service process until it serves


class Says(Protocol):
    """The part of a view that the launcher uses: lines that stay."""

    def say(self, text: str) -> None:
        """Print `text` as a line that stays."""


@dataclass
class Outcome:
    """The end of a run on this host. `state`: solved, finished, done, stopped, failed or superseded."""

    state: str
    status: int
    why: str = ""


MakeMonitor = Callable[[Context], Monitor]
FromCard = Callable[[dict[str, Any]], RunSpec]


class Launcher:
    """The launcher of one run on one host.

    `from_card`: makes the spec of a host that joins from the card that the leader has posted. `forks`: forks the
    processes; without it exec starts them.
    """

    def __init__(
        self,
        spec: RunSpec,
        folder: RunFolder,
        view: Says,
        make_monitor: MakeMonitor,
        from_card: FromCard | None = None,
        forks: Forks | None = None,
    ) -> None:
        self.spec, self.folder, self.say = spec, folder, view.say
        self._make_monitor, self._from_card, self._forks = make_monitor, from_card, forks
        if forks is not None:
            forks.say = view.say
        self.interrupts = Interrupts(getattr(view, "close", None))
        self.playing = False
        self._serving: set[str] = set()
        self._started_at = self._beat_at = self._health_at = 0.0
        self._learned_since: float | None = None
        self._health = Health("")
        self._stalls = Stalls()
        self._note = ""

    def run(self, pending: servers.PendingServers | None = None) -> Outcome:
        """Run to the end, on the servers that are `pending`. Raises WarrenError when nothing could be started."""
        self.folder.remove(OUTCOME)
        for name, text in self.spec.files.items():
            self.folder.write(name, text)
        self.folder.tidy()
        self.say(f"run folder {self.spec.folder}\nrun name   {self.spec.run}")
        with (pending or begin_servers(self.spec.servers, self.folder, self.spec.run)).finish(self.say) as found:
            self.interrupts.install(lambda: found.children)
            if self.spec.leads:
                self._examine(found)
            self.folder.begun = True
            return self._run_on(found)

    def _run_on(self, found: servers.Servers) -> Outcome:
        self._found = found
        self.topology = Topology(self.spec.run)
        self.app = create_app(self.topology, found.broker_url, found.redis_url)
        self.depths = Depths(self.app, self.topology)
        self.watch = ServerWatch(self.app, found.redis_url, self.depths)
        membership = Membership(found.redis_url, self.topology)
        given = (self.spec, membership, self.app, self.topology, found.redis_url)
        self.place = Leading(*given) if self.spec.leads else Following(*given)
        self.place.say = self.say
        if isinstance(self.place, Leading):
            self.place.begin(lambda: self.interrupts.asked)
        else:
            self._join(self.place)
        environment = {**found.environment(), "WARREN_RUN": self.spec.run}
        self.supervisor = Supervisor(
            self.folder.path, environment, self.spec.restarts, self.say, self.watch.excuses, self._servers_away,
            self._forks,
        )  # fmt: skip
        self.interrupts.install(self.supervisor.processes)
        outcome = Outcome("failed", 1)
        self._began = time.monotonic()
        self.monitor: Monitor | None = None
        self._answering: Answering | None = None
        self._scaling: Scaling | None = None
        try:
            self._begin()
            outcome = self._live()
        except Superseded as error:
            self.say(f"error: {error}")
            outcome = Outcome("superseded", 1, str(error))
        except WarrenError as error:
            self.say(f"error: {error}")
            outcome = Outcome("failed", 1, str(error))
            self.place.gave_up(str(error))
        except redis.RedisError as error:
            self.say(f"error: Redis is away: {error}")
            outcome = Outcome("failed", 1, str(error))
        except Exception as error:  # a fault of this launcher: the run still ends in order, and can be resumed
            self.say(f"error: {traceback.format_exc()}")
            outcome = Outcome("failed", 1, f"{type(error).__name__}: {error}")
        finally:
            self._end(outcome)
        return outcome

    # Beginning.

    def _join(self, place: Following) -> None:
        place.begin(lambda: self.interrupts.asked)
        try:
            if self._from_card is not None:
                self.spec = replace(self._from_card(place.membership.card()), folder=self.folder.path)
                for name, text in self.spec.files.items():
                    self.folder.write(name, text)
            self._examine(self._found)
        except BaseException:
            place.membership.rest()
            raise

    def _examine(self, found: servers.Servers) -> None:
        """Check the servers and this machine and print warnings. Raises BrokerError for what would prevent a run."""
        count = sum(len(spec.ranks) for spec in self.spec.processes)
        league = self.spec.kind == "league"
        doctor.quick(found, self.spec.run, self.folder.path, self.say, processes=count, league=league)

    def _begin(self) -> None:
        context = Context(
            self.spec, self.folder, self.app, self.topology, self._found.broker_url, self._found.redis_url,
            self._found.kind, self.supervisor, self.watch, self.say,
        )  # fmt: skip
        self.monitor = self._make_monitor(context)
        self.monitor.begin()
        if isinstance(self.place, Leading):
            self.place.admit()
        self._start_phase(0)
        if isinstance(self.place, Leading):
            specs = [spec for spec in self.spec.processes if spec.setting is not None]
            client = redis_client.connect(self._found.redis_url)
            self._scaling = Scaling(
                self.app, client, specs, self.supervisor, self.monitor.check_counts, self._keep_counts, self.say,
                self._asked_to_stop, self.spec.host or socket.gethostname(),
            )  # fmt: skip
            self._scaling.start()
        self.watch.start()
        self._answering = Answering(self.app, self._expected_to_answer)

    def _start_phase(self, phase: int) -> None:
        for spec in self.spec.processes:
            if spec.phase == phase:
                for rank in spec.ranks:
                    self.supervisor.start(spec, rank)
        self._started_at = time.monotonic()

    # Living.

    def _live(self) -> Outcome:
        assert self.monitor is not None
        while True:
            if self.interrupts.asked:
                self.say("stopping: work in progress is finished and kept (Ctrl-C again stops at once)")
                return Outcome("stopped", KILLED)
            self._found.revive(self.say, self.spec.restarts)
            if self.supervisor.poll():
                return Outcome("done", 0)
            if self._scaling is not None:
                self._scaling.poll()
            if (status := self._beat()) is not None:
                return Outcome("done" if status == 0 else "stopped" if status == KILLED else "failed", status)
            if (state := self.monitor.poll()) is not None:
                self.monitor.announce(state)
                return Outcome(state, 0)
            self._look_at_health()
            self.monitor.show(self._health)
            time.sleep(POLL_EVERY)

    def _beat(self) -> int | None:
        if time.monotonic() < self._beat_at or self.watch.redis_away:
            return None
        self._beat_at = time.monotonic() + BEAT_EVERY
        try:
            return self.place.beat(self)
        except redis.RedisError:
            return None  # the watch reports it

    def _look_at_health(self) -> None:
        assert self.monitor is not None and self._answering is not None
        if time.monotonic() < self._health_at:
            return
        self._health_at = time.monotonic() + HEALTH_EVERY
        steps = self.monitor.steps()
        standing = self._stalls.poll(steps)
        excused = self.monitor.excused()
        troubles = [*self.watch.away(), *self.supervisor.troubles()]
        self._answering.want(any(player not in excused for player in standing))
        troubled = " ".join(troubles)
        silent = [name for name in self._answering.silent if name not in troubled]
        troubles += [f"{name} does not answer" for name in silent]
        begun = sum(steps.values()) > 0
        stalls = explain(standing, excused, troubles, self.watch.depths, begun)
        notes = [*stalls, *(() if stalls else troubles), *filter(None, [self.place.note])]
        self._health = Health(self.supervisor.standing(), notes)

    def _expected_to_answer(self) -> list[str]:
        return [child.name for child in self.supervisor.children if child.alive and child.spec.answers]

    def _servers_away(self) -> bool:
        return bool(self.watch.away())

    def _asked_to_stop(self) -> None:
        self.interrupts.asked = True

    def _keep_counts(self, counts: Any) -> None:
        assert self.monitor is not None
        self.monitor.keep_counts(counts)
        try:
            self.folder.write(COUNTS, json.dumps(dict(counts)) + "\n")
        except OSError as error:
            self.say(f"warning: a resumed run will not have the new counts: {error}")

    # Implementation of places.Share.

    def ready(self) -> bool:
        """Return whether all services of this share are served. Raises WarrenError when one takes too long to start."""
        if not self.spec.waits_for_hosts:
            return True
        wanted = {managed.name for managed in self.supervisor.children if not managed.spec.phase}
        if not wanted <= self._serving:
            self._serving = self.place.membership.serving()
        missing = sorted(wanted - self._serving)
        if missing and time.monotonic() - self._started_at > READY_WITHIN:
            raise WarrenError(f"{', '.join(missing)} did not start to serve within {READY_WITHIN:g} s; see the logs")
        return not missing

    def left(self) -> int:
        """Return the number of processes of phase 1 that are not done."""
        all_of_them = sum(len(spec.ranks) for spec in self.spec.processes if spec.phase)
        return all_of_them - sum(managed.done for managed in self.supervisor.children if managed.spec.phase)

    def play(self) -> None:
        """Start phase 1."""
        self.playing = True
        self._start_phase(1)

    def update_seconds(self) -> float:
        """Return the longest time of an update of a learner, in s, that this host has seen."""
        return 0.0 if self.monitor is None else self.monitor.update_seconds()

    # Ending.

    def _end(self, outcome: Outcome) -> None:
        """Stop all processes, tell the other hosts, remove the run; the outcome is written whatever fails."""
        monitor = self.monitor
        try:
            if self._answering is not None:
                self._answering.stop()
            if isinstance(self.place, Leading) and outcome.state != "superseded":
                self._quietly("the end was not announced", lambda: self._announce(outcome))
            if self._scaling is not None:
                self._scaling.stop()
            self._lengthen_graces()
            self.supervisor.stop()
            self.watch.stop()
            if monitor is not None:
                self._quietly("events", monitor.stop)
            if self._scaling is not None:
                self._scaling.ended()
            self.folder.tidy()
        finally:
            if monitor is not None and self.spec.leads:
                self.folder.write_last(OUTCOME, monitor.outcome(outcome.state, self._seconds()), self.say)
            if isinstance(self.place, Following):
                self.place.leave(outcome.status)
            elif outcome.state != "superseded":
                self._remove(self.place, outcome)
            self.place.membership.rest()
            self.depths.close()

    def _announce(self, outcome: Outcome) -> None:
        assert isinstance(self.place, Leading)
        try:
            self.place.announce_end(outcome.status)
        except Superseded as error:
            self.say(f"error: {error}")
            outcome.state, outcome.status = "superseded", outcome.status or 1

    def _remove(self, place: Leading, outcome: Outcome) -> None:
        if (death := self._found.dead()) is not None:
            self.say(f"{death}\nthis run's own server is gone, so nothing has to be removed from it")
            return
        topology = self.topology
        try:
            place.await_others(outcome.status)
            if self.monitor is not None:
                self._quietly("the account", self.monitor.account)
                topology = self.monitor.topology
            place.remove(topology, self._found.temporary)
        except Superseded as error:
            self.say(f"error: {error}")

    def _lengthen_graces(self) -> None:
        """Give learners enough time to finish an update."""
        if self.monitor is not None:
            longest = 2.0 * max(self.update_seconds(), self.place.update)
            for managed in self.supervisor.children:
                managed.grace = max(managed.grace, min(longest, managed.spec.longest))

    def _seconds(self) -> float:
        return time.monotonic() - self._began

    def _quietly(self, what: str, act: Callable[[], object]) -> None:
        try:
            act()
        except (WarrenError, redis.RedisError, OSError) as error:
            self.say(f"warning: {what}: {error}")


def begin_servers(asked: ServersSpec, folder: RunFolder, run: str) -> servers.PendingServers:
    """Start the servers of a run: private ones boot from now on."""
    return servers.begin(
        asked.mode, asked.broker_url, asked.redis_url,
        folder=folder.path, listen=asked.listen, lock=folder.lock, run=run,
    )  # fmt: skip
