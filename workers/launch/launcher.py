"""The launcher of every run: locks the folder, finds servers, starts processes, supervises all, ends and removes it.

    with RunFolder.take(spec.folder) as folder:
        outcome = Launcher(spec, folder, view, make_monitor).run()

The monitor (monitor.py) and the spec hold all that is particular to training, a league or a file of services.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

from tasks.app import create_app
from tasks.topology import Topology
from workers import doctor, servers
from workers.launch.folder import OUTCOME, RunFolder
from workers.launch.host_run import HostRun, MakeMonitor, Outcome
from workers.launch.hosts.following import Following
from workers.launch.hosts.membership import Membership
from workers.launch.hosts.places import Leading, Place
from workers.launch.processes.interrupts import Interrupts
from workers.launch.spec import RunSpec, ServersSpec
from workers.servers.forks import Forks


class Says(Protocol):
    """The part of a view that the launcher uses: lines that stay."""

    def say(self, text: str) -> None:
        """Print `text` as a line that stays."""


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

    def run(self, pending: servers.PendingServers | None = None) -> Outcome:
        """Run to the end, on the servers that are `pending`. Raises WarrenError when nothing could be started."""
        self.folder.remove(OUTCOME)
        self._write_files()
        self.folder.tidy()
        self.say(f"run folder {self.spec.folder}\nrun name   {self.spec.run}")
        with (pending or begin_servers(self.spec.servers, self.folder, self.spec.run)).finish(self.say) as found:
            self.interrupts.install(lambda: found.children)
            if self.spec.leads:
                self._examine(found)
            self.folder.begun = True
            return self._share(found).run()

    def _share(self, found: servers.Servers) -> HostRun:
        """Take this host's place in the run and return its share. Gives the place up again if that fails."""
        topology = Topology(self.spec.run)
        app = create_app(topology, found.broker_url, found.redis_url)
        membership = Membership(found.redis_url, topology)
        kind: type[Place] = Leading if self.spec.leads else Following
        place = kind(self.spec, membership, app, topology, found.redis_url)
        place.say = self.say
        place.begin(lambda: self.interrupts.asked)
        try:
            if not self.spec.leads:
                self._take_over(membership.card())
                self._examine(found)
            return HostRun(
                self.spec, self.folder, self.say, self.interrupts, found, place, self._make_monitor, self._forks
            )
        except BaseException:
            place.abandon()
            raise

    def _take_over(self, card: dict[str, Any]) -> None:
        """Replace the spec by that of the leader's card."""
        if self._from_card is not None:
            self.spec = replace(self._from_card(card), folder=self.folder.path)
            self._write_files()

    def _write_files(self) -> None:
        for name, text in self.spec.files.items():
            self.folder.write(name, text)

    def _examine(self, found: servers.Servers) -> None:
        """Check the servers and this machine and print warnings. Raises BrokerError for what would prevent a run."""
        count = sum(len(spec.ranks) for spec in self.spec.processes)
        league = self.spec.kind == "league"
        doctor.quick(found, self.spec.run, self.folder.path, self.say, processes=count, league=league)


def begin_servers(asked: ServersSpec, folder: RunFolder, run: str) -> servers.PendingServers:
    """Start the servers of a run: private ones boot from now on."""
    return servers.begin(
        asked.mode, asked.broker_url, asked.redis_url,
        folder=folder.path, listen=asked.listen, lock=folder.lock, run=run,
    )  # fmt: skip
