"""The share of one host in a run: starts its processes, supervises them, ends and removes the run."""

from __future__ import annotations

import json
import socket
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import redis

from tasks.admin.cleanup import Depths
from warren import redis_client
from warren.errors import WarrenError
from workers import servers
from workers.config.too_many import told_too_many
from workers.launch.folder import COUNTS, OUTCOME, RunFolder
from workers.launch.health_check import HealthCheck
from workers.launch.hosts.membership import Superseded
from workers.launch.hosts.places import Place
from workers.launch.hosts.scaling import Scaling
from workers.launch.monitor import Context, Monitor
from workers.launch.processes.failure_log import Entry, FailureLog
from workers.launch.processes.interrupts import KILLED, Interrupts
from workers.launch.processes.logins import Logins
from workers.launch.processes.supervisor import Supervisor
from workers.launch.spec import RunSpec
from workers.launch.watching.host_metrics import HostMetrics
from workers.launch.watching.server_watch import ServerWatch
from workers.servers.forks import Forks
from workers.servers.process import Child

POLL_EVERY = 0.1  # s between polls of children, figures and keys pressed
BEAT_EVERY = 1.0  # s between polls of the other launchers, and renewals of the lease
READY_WITHIN = 180.0  # s from the start of a service process until it serves

MakeMonitor = Callable[[Context], Monitor]


@dataclass
class Outcome:
    """The end of a run on this host. `state`: solved, finished, done, stopped, failed or superseded."""

    state: str
    status: int
    why: str = ""


class HostRun:
    """The share of one host in a run, whose `place` has been taken, on the servers `found`."""

    def __init__(
        self,
        spec: RunSpec,
        folder: RunFolder,
        say: Callable[[str], None],
        interrupts: Interrupts,
        found: servers.Servers,
        place: Place,
        make_monitor: MakeMonitor,
        forks: Forks | None,
    ) -> None:
        self.spec, self.folder, self.say, self.interrupts = spec, folder, say, interrupts
        self.place, self._found = place, found
        app, topology = place.app, place.topology
        self.depths = Depths(app, topology)
        self.watch = ServerWatch(app, found.redis_url, self.depths)
        environment = {**found.environment(), "WARREN_RUN": spec.run}
        self._metrics: HostMetrics | None = None
        if spec.metrics is not None:
            self._metrics = HostMetrics(folder.path, app, topology)
            environment |= self._metrics.environment
        self.failures = FailureLog(folder.path, say)
        self.logins = Logins(spec.run, found)
        self.supervisor = Supervisor(
            folder.path, environment, spec.restarts, say, self.watch.excuses, lambda: bool(self.watch.away()), forks,
            self.failures, self.logins,
        )  # fmt: skip
        interrupts.install(self.supervisor.processes)
        context = Context(
            spec, folder, app, topology, found.broker_url, found.redis_url, found.kind, self.supervisor, self.watch, say
        )
        self.monitor = make_monitor(context)
        self.health = HealthCheck(app, self.monitor, self.supervisor, self.watch)
        self._scaling: Scaling | None = self._make_scaling(app) if spec.leads else None
        self.playing = False
        self._serving: set[str] = set()
        self._started_at = self._beat_at = 0.0
        self._began = time.monotonic()

    def _make_scaling(self, app: Any) -> Scaling:
        specs = [spec for spec in self.spec.processes if spec.setting is not None]
        return Scaling(
            app, redis_client.connect(self._found.redis_url), specs, self.supervisor, self.monitor.check_counts,
            self._keep_counts, self.say, self._ask_to_stop, self.spec.host or socket.gethostname(),
        )  # fmt: skip

    def run(self) -> Outcome:
        """Run to the end and return how it ended; whatever fails, the run is ended in order."""
        outcome = Outcome("failed", 1)
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
            too_many = told_too_many(error)
            self.say(f"error: {too_many or traceback.format_exc()}")
            outcome = Outcome("failed", 1, too_many or f"{type(error).__name__}: {error}")
        finally:
            if outcome.why:
                self.failures.add(Entry("run", outcome.why, outcome.state))
            self._end(outcome)
        return outcome

    def _begin(self) -> None:
        self.logins.check(self.spec.processes, self.spec.servers)
        self.monitor.begin()
        self.place.admit()
        self._start_phase(0)
        if self._scaling is not None:
            self._scaling.start()
        self.watch.start()
        self.health.start()
        if self._metrics is not None and self.spec.metrics is not None:
            url = self._metrics.start(*self.spec.metrics, self.supervisor, self.watch, self.health)
            self.say(f"metrics for Prometheus: {url}")

    def _start_phase(self, phase: int) -> None:
        for spec in self.spec.processes:
            if spec.phase == phase:
                for rank in spec.ranks:
                    self.supervisor.start(spec, rank)
        self._started_at = time.monotonic()

    # Living.

    def _live(self) -> Outcome:
        while True:
            if self.interrupts.asked:
                self.say("stopping: work in progress is finished and kept (Ctrl-C again stops at once)")
                return Outcome("stopped", KILLED)
            self._found.revive(self.say, self.spec.restarts, self._keep_end_of_server)
            if self.supervisor.poll():
                return Outcome("done", 0)
            if self._scaling is not None:
                self._scaling.poll()
            if (status := self._beat()) is not None:
                return Outcome("done" if status == 0 else "stopped" if status == KILLED else "failed", status)
            if (state := self.monitor.poll()) is not None:
                self.monitor.announce(state)
                return Outcome(state, 0)
            self.monitor.show(self.health.look(self.place.note))
            time.sleep(POLL_EVERY)

    def _keep_end_of_server(self, server: Child, then: str) -> None:
        cause = "it ended by itself"
        self.failures.add(Entry(server.name, cause, then, server.status, said=server.last_lines()))

    def _beat(self) -> int | None:
        if time.monotonic() < self._beat_at or self.watch.redis_away:
            return None
        self._beat_at = time.monotonic() + BEAT_EVERY
        try:
            return self.place.beat(self)
        except redis.RedisError:
            return None  # the watch reports it

    def _ask_to_stop(self) -> None:
        self.interrupts.asked = True

    def _keep_counts(self, counts: Any) -> None:
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
        children = (one for one in self.supervisor.children if not one.spec.phase and not one.leaving)
        wanted = {one.name for one in children if one.rank in one.spec.ranks}  # without those that were added
        if not wanted <= self._serving:
            self._serving = self.place.membership.serving()
        missing = sorted(wanted - self._serving)
        if missing and time.monotonic() - self._started_at > READY_WITHIN:
            raise WarrenError(f"{', '.join(missing)} did not start to serve within {READY_WITHIN:g} s; see the logs")
        return not missing

    def left(self) -> int:
        """Return the number of processes of phase 1 that are not done."""
        if not self.playing:
            return sum(len(spec.ranks) for spec in self.spec.processes if spec.phase)
        return sum(not managed.done for managed in self.supervisor.children if managed.spec.phase)

    def play(self) -> None:
        """Start phase 1."""
        self.playing = True
        self._start_phase(1)
        if self._scaling is not None:
            self._scaling.take_over(1)

    def update_seconds(self) -> float:
        """Return the longest time of an update of a learner, in s, that this host has seen."""
        return self.monitor.update_seconds()

    # Ending.

    def _end(self, outcome: Outcome) -> None:
        """Stop all processes, tell the other hosts, remove the run; the outcome is written whatever fails."""
        try:
            self.health.stop()
            if self._metrics is not None:
                self._metrics.stop()
            if outcome.state != "superseded":
                self._quietly("the end was not announced", lambda: self._announce(outcome))
            if self._scaling is not None:
                self._scaling.stop()
            self._lengthen_graces()
            self.supervisor.stop()
            self.watch.stop()
            self._quietly("events", self.monitor.stop)
            if self._scaling is not None:
                self._scaling.ended()
            self.folder.tidy()
        finally:
            if self.spec.leads:
                written = self.monitor.outcome(outcome.state, time.monotonic() - self._began)
                self.folder.write_last(OUTCOME, written, self.say)
                if outcome.state != "superseded":
                    self._remove(outcome)
            self.place.leave(outcome.status)
            self.place.membership.rest()
            self.depths.close()

    def _announce(self, outcome: Outcome) -> None:
        try:
            self.place.announce_end(outcome.status)
        except Superseded as error:
            self.say(f"error: {error}")
            outcome.state, outcome.status = "superseded", outcome.status or 1

    def _remove(self, outcome: Outcome) -> None:
        if (death := self._found.dead()) is not None:
            self.say(f"{death}\nthis run's own server is gone, so nothing has to be removed from it")
            return
        try:
            self.place.await_others(outcome.status)
            self._quietly("the account", self.monitor.account)
            self.place.remove(self.monitor.topology, self._found.temporary)
        except Superseded as error:
            self.say(f"error: {error}")

    def _lengthen_graces(self) -> None:
        """Give learners enough time to finish an update."""
        longest = 2.0 * max(self.update_seconds(), self.place.update)
        for managed in self.supervisor.children:
            managed.grace = max(managed.grace, min(longest, managed.spec.longest))

    def _quietly(self, what: str, act: Callable[[], object]) -> None:
        try:
            act()
        except (WarrenError, redis.RedisError, OSError) as error:
            self.say(f"warning: {what}: {error}")
