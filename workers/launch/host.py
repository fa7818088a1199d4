"""A run from a file as one host lives it: the leader opens it, ends it, cleans up; followers join and leave with it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis

from tasks.admin.cleanup import remove_run
from tasks.app import create_app
from tasks.events import EventDispatcher, Subscription
from tasks.events.retained import Retained
from tasks.topology import Topology
from warren.errors import BrokerError, WarrenError
from workers.launch.crew import Crew
from workers.launch.interrupts import KILLED, Interrupts
from workers.launch.membership import ENDED, LEASE, Meeting, Word
from workers.launch.run_file import RunFile
from workers.launch.supervisor import GRACE
from workers.servers import Servers
from workers.ui.run_view import CallCounts, RunView

LOOK_EVERY = 0.1  # s between looks at children and keys pressed
BEAT_EVERY = 1.0  # s between words to the other launchers
REMIND_EVERY = 30.0  # s between reminders of what is waited for
FAREWELL = GRACE + 4.0  # s that the leader waits for followers to stop what they started


@dataclass
class Place:
    """Where and as what this launcher runs. `host`: its name in the run; None: it is alone."""

    file: RunFile
    host: str | None
    run: str
    folder: Path
    found: Servers
    view: RunView
    interrupts: Interrupts
    topology: Topology = field(init=False)
    app: Any = field(init=False)

    def __post_init__(self) -> None:
        self.topology = Topology(self.run)
        self.app = create_app(self.topology, self.found.broker_url, self.found.redis_url)


class _Launcher:
    """What both do: start a crew, look after it, show it, say how it stands."""

    def __init__(self, place: Place) -> None:
        self.place, self.view = place, place.view
        self.meeting = Meeting(place.found.redis_url, place.topology)
        self.host = place.host or "alone"
        self.note = ""
        self._beat_at = self._reminded_at = float("-inf")
        file = place.file
        self.crew = Crew(
            file.shares(place.host if file.hosts else None),
            place.folder,
            {**place.found.environment(), "WARREN_RUN": place.run},
            self.meeting,
            file.restarts,
            file.log_level,
            suffix=f"-{place.host}" if file.join else "",  # a joined run has its own processes of the same names
            say=self.view.say,
        )
        place.interrupts.install(self.crew.supervisor.processes)
        self.counts = CallCounts(place.app, place.topology)

    def run(self) -> int:
        """To the end; the exit status."""
        status = 1
        self.begin()
        try:
            self.counts.start()
            self.crew.start()
            status = self._live()
        except WarrenError as error:
            self.view.say(f"error: {error}")
            self.gave_up(str(error))
        finally:
            self.counts.stop()
            self.end(status)
        return status

    def _live(self) -> int:
        while True:
            if self.place.interrupts.asked:
                self.view.say("stopping (Ctrl-C again stops at once)")
                return KILLED
            if words := self.place.found.dead():
                raise WarrenError(words)
            self.crew.supervisor.poll()
            if time.monotonic() >= self._beat_at:
                self._beat_at = time.monotonic() + BEAT_EVERY
                try:
                    status = self.beat()
                except redis.RedisError as error:
                    self.note = f"Redis is away: {error}"
                else:
                    if status is not None:
                        return status
            self.view.show(self.crew.standings(), self.counts.newest, self.note)
            time.sleep(LOOK_EVERY)

    def wait_for(self, what: str) -> None:
        """Say what is being waited for, not too often."""
        if what and (what != self.note or time.monotonic() - self._reminded_at > REMIND_EVERY):
            self._reminded_at = time.monotonic()
            self.view.say(what)
        self.note = what

    def word(self, **more: Any) -> Word:
        """How this launcher stands."""
        return Word(self.host, left=self.crew.left(), **more)

    def begin(self) -> None:
        """Take this launcher's place in the run."""
        raise NotImplementedError

    def beat(self) -> int | None:
        """Once a second: talk to the other launchers. The exit status when the run is over."""
        raise NotImplementedError

    def gave_up(self, why: str) -> None:
        """Tell the others that this share failed."""

    def end(self, status: int) -> None:
        """Stop what was started."""
        raise NotImplementedError


class Leader(_Launcher):
    """Leads a run, alone or with other hosts. `events`: what its services hear; `roles`: first parts of their names."""

    def __init__(self, place: Place, events: list[str], roles: list[str]) -> None:
        super().__init__(place)
        self._events, self._roles = events, roles
        self._awaited = set(place.file.hosts) - {self.host}
        self._seen: dict[str, Word] = {}
        self._open = False
        self._plays = any(entry.finite for entry in place.file.entries)

    def begin(self) -> None:
        if self.place.file.run or self.place.file.hosts:
            self._sweep()
        self.meeting.take(True, self.word())
        # Before anything can be fired: an actor that starts after the learner hears its first weights all the same.
        Retained(self.place.app, self.place.topology).hear(self._events)
        if self.place.found.kind == "rabbitmq":
            with self.place.app.connection_for_write() as connection, connection.channel() as channel:
                for role in self._roles:
                    self.place.topology.dead_queue(role)(channel).declare()

    def _sweep(self) -> None:
        """A run of that name that was killed may have left queues, and words that hold no longer."""
        if self.meeting.leader() is None:
            remove_run(self.place.app, redis.Redis.from_url(self.place.found.redis_url), self.place.topology)

    def beat(self) -> int | None:
        hosts = self.meeting.hosts()
        self._greet(hosts)
        if not self._open:
            missing = sorted(self._awaited - set(hosts))
            if missing:
                host = missing[0] if len(missing) == 1 else "NAME"
                self.wait_for(f"waiting for {', '.join(missing)}: start there {self._command(host)}")
            elif not all(word.ready for word in hosts.values()):
                self.wait_for("waiting for the services of the other hosts")
            elif self.crew.ready():
                self.wait_for("")
                self._open = True
        if self._open and not self.crew.playing:
            self.crew.play()
        self._plays = self._plays or any(word.left for word in self._seen.values())
        self.meeting.say(True, self.word(ready=self._open))
        left = self.crew.left() + sum(word.left for word in self._seen.values())
        return 0 if self._open and self._plays and not left else None

    def _greet(self, hosts: dict[str, Word]) -> None:
        """Say who came, went, or gave up."""
        for host, word in hosts.items():
            if word.failed:
                raise WarrenError(f"host {host} gave up: {word.failed}")
            if host not in self._seen or self._seen[host].token != word.token:
                self.view.say(f"host {host} has joined: {word.where}")
        gone = [host for host in self._seen if host not in hosts]
        for host in gone:
            word = self._seen.pop(host)
            if host in self._awaited and word.left:
                self._seen[host] = word
                self.wait_for(f"host {host} is gone; start it again there: {self._command(host)}")
            else:
                self.view.say(f"host {host} has left")
        if self._open and not gone:
            self.wait_for("")
        self._seen |= hosts

    def _command(self, host: str) -> str:
        return f"python -m workers.run {self.place.file.path} --host {host}"

    def end(self, status: int) -> None:
        found, topology, app = self.place.found, self.place.topology, self.place.app
        if found.dead() is not None:
            self.crew.supervisor.stop()
            return
        try:
            self.meeting.say(True, self.word(ready=True, status=status))
            EventDispatcher(app, topology).fire(ENDED, status)
        except (WarrenError, redis.RedisError) as error:
            self.view.say(f"warning: the other hosts were not told of the end: {error}")
        self.crew.supervisor.stop()
        try:
            limit = time.monotonic() + FAREWELL
            while self._seen and time.monotonic() < limit:
                self._seen = {host: word for host, word in self.meeting.hosts().items() if not word.failed}
                time.sleep(LOOK_EVERY)
            remove_run(app, redis.Redis.from_url(found.redis_url), topology)
        except (BrokerError, redis.RedisError) as error:
            self.view.say(f"warning: the servers are away, so something of this run may be left there: {error}")
        if status == 0:
            self.view.say("all environments are done")


class Follower(_Launcher):
    """Joins a run that another host leads, and leaves with it."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._ended: list[int] = []
        self._silent_since: float | None = None
        self._failed = False
        self._subscription: Subscription | None = None

    def begin(self) -> None:
        where = self.place.file.leader or "its first machine"
        while (leader := self._leader()) is None:
            self.wait_for(f"waiting for run {self.place.run}, which {where} has to start (Ctrl-C: stop waiting)")
            if self.place.interrupts.asked:
                raise KeyboardInterrupt
            time.sleep(LOOK_EVERY)
        self.wait_for("")
        self.meeting.take(False, self.word())
        self.view.say(f"joined run {self.place.run}, led by {leader.where}")
        handlers = {ENDED: self._ended.append}
        name = f"launcher-{self.host}"
        self._subscription = Subscription(self.place.app, self.place.topology, handlers, name).start()

    def _leader(self) -> Word | None:
        """Who leads, but not one who has ended."""
        try:
            leader = self.meeting.leader()
        except redis.RedisError as error:
            raise BrokerError(f"Redis is away: {error}") from error
        return leader if leader is not None and leader.status is None else None

    def beat(self) -> int | None:
        if self._ended:
            return int(self._ended[0])
        leader = self.meeting.leader()
        if leader is None:
            self._silent_since = self._silent_since or time.monotonic()
            if time.monotonic() - self._silent_since > LEASE:
                raise WarrenError(f"the leader of run {self.place.run} is gone without a word; start the run again")
        else:
            self._silent_since = None
            if leader.status is not None:
                return leader.status
        ready = self.crew.ready()
        self.meeting.say(False, self.word(ready=ready))
        if ready and leader is not None and leader.ready and not self.crew.playing:
            self.crew.play()
        return None

    def gave_up(self, why: str) -> None:
        self._failed = True
        try:
            self.meeting.say(False, self.word(failed=why))
        except (WarrenError, redis.RedisError) as error:
            self.view.say(f"warning: the leader was not told: {error}")

    def end(self, status: int) -> None:
        self.crew.supervisor.stop()
        if self._subscription is not None:
            self._subscription.stop()
        if not self._failed:  # otherwise the leader is to read why
            try:
                self.meeting.leave(self.host)
            except redis.RedisError as error:
                self.view.say(f"warning: the leader was not told of the end: {error}")
        self.view.say(f"run {self.place.run} {'is done' if status == 0 else f'has ended with status {status}'}")
