"""The specification of a launcher's run: its processes, the meaning of their ends, the order of their stops.

Training, a league and a file of services compile to this (training_spec.py, services_spec.py); launcher.py and
host_run.py run it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from workers.config.roles import Done, Restart

GRACE = 8.0  # s that a process gets to finish its work after being told to stop, unless configured otherwise


@dataclass(frozen=True)
class ProcessSpec:
    """A kind of process; this host starts one for each of `ranks`.

    `command`: without the interpreter. `numbered`: further arguments, in which {rank} and {name} are replaced by those
    of the process. `phase`: 0 starts at once, 1 when all services of all hosts are served; the run is over when all
    processes of phase 1, on any host, are done. `stop_order`: processes of 0 are stopped first. `setting`: the setting
    that holds their number, if that may be changed while the run lasts. `forked`: it may be forked from a process that
    has imported most roles' modules (workers/servers/fork_server.py). `rights`: the role of its user on the servers
    (tasks/rights.py); "" if it has the launcher's. `longest`: s of grace at most, if an update takes longer than
    `grace`. `answers`: it answers remote control.
    """

    role: str
    ranks: range
    command: tuple[str, ...]
    numbered: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    restart: Restart = Restart.critical
    done: Done = Done.restart
    phase: int = 0
    stop_order: int = 0
    grace: float = GRACE
    longest: float = 0.0
    setting: str | None = None
    suffix: str = ""  # end of the names, to distinguish them from another host's
    single: bool = False  # the run has only one, with the role's name
    num: int | None = None  # processes of this kind in the whole run; default: those of `ranks`
    forked: bool = False
    answers: bool = False
    rights: str = ""

    def name(self, rank: int) -> str:
        """Return the name of the process and of its log."""
        return self.role + ("" if self.single else f"-{rank}") + self.suffix

    def line(self, rank: int) -> list[str]:
        """Return the whole command line of one process."""
        numbered = [part.replace("{rank}", str(rank)).replace("{name}", self.name(rank)) for part in self.numbered]
        return [sys.executable, *self.command, *numbered]


@dataclass(frozen=True)
class ServersSpec:
    """The origin of the servers; see `workers.servers.acquire`."""

    mode: str = "auto"
    broker_url: str | None = field(default=None, repr=False)
    redis_url: str | None = field(default=None, repr=False)
    listen: str | None = None


@dataclass(frozen=True)
class RunSpec:
    """The share of one launcher in one run.

    `host`: its name in the run; None if it is the only one. `leads`: it opens, ends and removes the run; others join.
    `hosts`: all hosts, the leader first. `waits_for_hosts`: phase 1 starts only when all of them have joined.
    `join_command`: the command for another host, with {host} for its name. `card`: facts of the run for hosts that
    join and for `python -m workers.runs`. `sweep`: the name may be that of an earlier run.
    `metrics`: the address and port of this launcher's endpoint for Prometheus.
    """

    kind: str  # "training", "league" or "services"
    run: str
    title: str
    folder: Path
    files: Mapping[str, str]  # name -> text, written into the folder once it is locked
    processes: tuple[ProcessSpec, ...]
    servers: ServersSpec
    restarts: int = 5
    host: str | None = None
    leads: bool = True
    hosts: tuple[str, ...] = ()
    waits_for_hosts: bool = False
    join_command: str = ""
    card: Mapping[str, object] = field(default_factory=dict)
    sweep: bool = False
    metrics: tuple[str, int] | None = None

    @property
    def finite(self) -> bool:
        """Return whether the run is over when its processes of phase 1 are done."""
        return any(spec.phase and len(spec.ranks) for spec in self.processes)
