"""The place of a launcher in its run: the leader opens, ends and removes the run; followers join."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

import redis

from tasks.admin.cleanup import remove_run
from tasks.app.reader import remove_shared
from tasks.events import STATUS, EventDispatcher
from tasks.topology import Topology
from warren import redis_client
from warren.errors import BrokerError, ConfigurationError, WarrenError
from workers.config.roles import ROLES
from workers.launch.hosts.membership import ENDED, NAMED, Membership, Presence, Superseded, named, still_live
from workers.launch.spec import GRACE, RunSpec
from workers.runtime.lease import SECONDS, Holder
from workers.runtime.run_status import CLOSED, Ending

POLL_EVERY = 0.1  # s
REMIND_EVERY = 30.0  # s between repeated lines about waiting
DEAD_WITHIN = 1.2 * SECONDS  # s after which a role whose lease still exists is alive
STOP_ORDERS = 1 + max(role.stop_order for role in ROLES)
END_WITHIN = GRACE + 4.0  # s for roles that were started by hand to end


class Share(Protocol):
    """The share of a run that this host runs, as its launcher knows it."""

    def ready(self) -> bool:
        """Return whether all services of the share are served."""

    def left(self) -> int:
        """Return the number of processes of phase 1 that are not done."""

    def play(self) -> None:
        """Start phase 1; called once."""

    def update_seconds(self) -> float:
        """Return the longest time of a learner's update, in s, that this host has seen."""

    @property
    def playing(self) -> bool:
        """Return whether phase 1 has begun."""


class Place:
    """The place of a launcher: the part that leaders and followers share, and the steps that only one of them takes."""

    def __init__(self, spec: RunSpec, membership: Membership, app: Any, topology: Topology, redis_url: str) -> None:
        self.spec, self.membership, self.app, self.topology = spec, membership, app, topology
        self.redis_url = redis_url
        self.host = spec.host or "alone"
        self.update = 0.0  # s of a learner's update, as the leader has measured
        self.note = ""
        self._reminded_at = float("-inf")
        self.say: Callable[[str], None] = print

    def begin(self, asked: Callable[[], bool] = lambda: False) -> None:
        """Take the place. Raises ConfigurationError if another has it; KeyboardInterrupt if `asked` to stop."""
        raise NotImplementedError

    def beat(self, share: Share) -> int | None:
        """Renew the lease, once a second; return the exit status if the run is over, else None."""
        raise NotImplementedError

    def abandon(self) -> None:
        """Give up the place of a run that could not start: its lease expires."""
        self.membership.rest()

    def admit(self) -> None:
        """Open the run for hosts that join; a leader's step."""

    def announce_end(self, status: int) -> None:
        """Tell the other hosts that the run has ended; a leader's step. Raises Superseded."""

    def await_others(self, status: int) -> None:
        """Wait for the other hosts to stop; a leader's step. Raises Superseded."""

    def remove(self, topology: Topology, temporary: bool = False) -> None:
        """Remove the run from the servers; a leader's step. Raises Superseded."""

    def gave_up(self, why: str) -> None:
        """Publish why this host gave up; a follower's step, as followers read the leader's status."""

    def leave(self, status: int) -> None:
        """Leave the run, when all processes are stopped; a follower's step."""

    def presence(self, share: Share | None = None, **more: Any) -> Presence:
        """Return the state of this launcher."""
        return Presence(self.host, left=0 if share is None else share.left(), update=self.update, **more)

    def wait_for(self, what: str) -> None:
        """Print what is waited for, every REMIND_EVERY s at most; "" for nothing."""
        if what and (what != self.note or time.monotonic() - self._reminded_at > REMIND_EVERY):
            self._reminded_at = time.monotonic()
            self.say(what)
        self.note = what


class Leading(Place):
    """The place of the leader, alone or with other hosts."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._awaited = set(self.spec.hosts) - {self.host}
        self._seen: dict[str, Presence] = {}
        self.open = False
        self._plays = self.spec.finite

    def begin(self, asked: Callable[[], bool] = lambda: False) -> None:
        """Take the lead, then remove the traces of an earlier run of the same name.

        Raises ConfigurationError if another launcher leads, or roles of an earlier run are alive; KeyboardInterrupt if
        asked to stop.
        """
        if self.spec.sweep and self.membership.leader() is None:
            self._wait_for_leases(asked)
        self.membership.take(True, self.presence())
        self.membership.hold()
        try:
            if self.spec.sweep:
                self._sweep()
            self.membership.post_card(self.spec.card)
        except BaseException:
            self.membership.rest()
            raise

    def _wait_for_leases(self, asked: Callable[[], bool]) -> None:
        """Wait until no role of the run is alive: the lease of one killed elsewhere has to expire."""
        limit = time.monotonic() + DEAD_WITHIN
        while alive := self.membership.living():
            if time.monotonic() > limit:
                raise ConfigurationError(self._taken_by(alive))
            self.wait_for(f"waiting up to {DEAD_WITHIN:g} s for an earlier run {self.spec.run} to end: {named(alive)}")
            if asked():
                raise KeyboardInterrupt
            time.sleep(POLL_EVERY)
        self.wait_for("")

    def _sweep(self) -> None:
        if alive := self.membership.living():  # started after the wait
            self.membership.leave(True, self.host)
            raise ConfigurationError(self._taken_by(alive))
        client = redis_client.connect(self.redis_url)
        remove_run(self.app, client, self.topology, self.membership.kept, self._still_leading)

    def _taken_by(self, alive: list[Holder]) -> str:
        return f"run {still_live(self.spec.run, alive)}, or name another run with run=NAME"

    def admit(self) -> None:
        """Open the run for hosts that join: all that they need exists."""
        self.membership.renew(True, self.presence(open=True))

    def beat(self, share: Share) -> int | None:
        """Renew the lease and greet hosts, once a second; return the exit status if the run is over, else None.

        Raises Superseded; WarrenError if a host gave up.
        """
        self.update = share.update_seconds()
        hosts = self.membership.hosts()
        self._report_hosts(hosts)
        if not self.open:
            missing = sorted(self._awaited - set(hosts))
            if missing:
                self.wait_for(f"waiting for {', '.join(missing)}; start there: {self._command(missing)}")
            elif self.spec.waits_for_hosts and not all(presence.ready for presence in hosts.values()):
                self.wait_for("waiting for the services of the other hosts")
            others_ready = not missing and all(presence.ready for presence in hosts.values())
            if (others_ready or not self.spec.waits_for_hosts) and share.ready():
                self.open = True
                if not missing:
                    self.wait_for("")
        elif self._awaited <= set(hosts):
            self.wait_for("")
        if self.open and not share.playing:
            share.play()
        self._plays = self._plays or any(presence.left for presence in self._seen.values())
        self.membership.renew(True, self.presence(share, open=True, ready=self.open))
        left = share.left() + sum(presence.left for presence in self._seen.values())
        return 0 if self.open and self._plays and not left else None

    def _report_hosts(self, hosts: dict[str, Presence]) -> None:
        """Print which hosts joined or left. Raises WarrenError if one gave up."""
        for host, presence in hosts.items():
            if presence.failed:
                raise WarrenError(f"host {host} gave up: {presence.failed}")
            if host not in self._seen or self._seen[host].token != presence.token:
                self.say(f"host {host} has joined: {presence.where}")
        for host in [host for host in self._seen if host not in hosts]:
            presence = self._seen.pop(host)
            if host in self._awaited and (presence.left or not self.spec.finite):
                if presence.left:
                    self._seen[host] = presence
                self.wait_for(f"host {host} is gone; start it again there: {self._command([host])}")
            else:
                self.say(f"host {host} has left")
        self._seen |= hosts

    def _command(self, missing: list[str]) -> str:
        return self.spec.join_command.replace("{host}", missing[0] if len(missing) == 1 else "NAME")

    def announce_end(self, status: int) -> None:
        """Tell the other hosts that the run has ended. Raises Superseded."""
        try:
            self.membership.renew(True, self.presence(open=True, ready=True, status=status))
            EventDispatcher(self.app, self.topology).fire(ENDED, status)
        except Superseded:
            raise
        except (WarrenError, redis.RedisError) as error:
            self.say(f"warning: the other hosts were not told of the end: {error}")

    def await_others(self, status: int) -> None:
        """Wait for the hosts that joined to stop their processes, and for roles that were started by hand to end.

        Prints the names of those that take too long. Raises Superseded.
        """

        def hosts() -> list[str]:
            return [f"host {host}" for host, one in self.membership.hosts().items() if not one.failed]

        try:
            self._until_gone(hosts, status, self.leave_within)
            EventDispatcher(self.app, self.topology).fire(STATUS, {"state": CLOSED})
            self._until_gone(lambda: [str(holder) for holder in self.membership.living()], status, END_WITHIN)
        except (BrokerError, redis.RedisError) as error:
            self.say(f"warning: the servers are away, so other processes of this run may still be alive: {error}")

    @property
    def leave_within(self) -> float:
        """Return the seconds that followers get to stop their processes, one stop order after another."""
        graces = [max(spec.grace, spec.longest) for spec in self.spec.processes]
        return STOP_ORDERS * (max(graces, default=0.0) + GRACE)

    def _until_gone(self, there: Callable[[], list[str]], status: int, seconds: float) -> None:
        limit = time.monotonic() + seconds
        while who := there():
            if time.monotonic() > limit:
                self.say(f"warning: not waiting any longer for {', '.join(who)}")
                return
            self.wait_for(f"waiting for {', '.join(who[:NAMED])} to stop")
            self.membership.renew(True, self.presence(open=True, ready=True, status=status))
            time.sleep(POLL_EVERY)

    def remove(self, topology: Topology, temporary: bool = False) -> None:
        """Remove the run from the servers, unless they are `temporary` and end now. Raises Superseded."""
        try:
            client = redis_client.connect(self.redis_url)
            if temporary:
                remove_shared(client, topology)  # its shared memory is the machine's
                return
            remove_run(self.app, client, topology, self.membership.kept, self._still_leading)
            Ending(client, topology.key_prefix).close()  # before the next launcher may open a run of this name
            self.membership.leave(True, self.host)
        except (BrokerError, redis.RedisError) as error:
            self.say(f"warning: the servers are away, so parts of this run may be left there: {error}")
        finally:
            self.membership.rest()

    def abandon(self) -> None:
        """Remove the run, as it could not start."""
        self.remove(self.topology)

    def _still_leading(self) -> None:
        self.membership.renew(True, self.presence())
