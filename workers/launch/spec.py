"""What a launcher is to run, as data: processes, what the end of each means, in which order they stop.

Training, a league and a file of services compile to this (training_spec.py, services_spec.py); launcher.py runs it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from workers.config.roles import Done, Restart

GRACE = 8.0  # s that a process has to finish what it holds after being told to stop, where nothing else is configured


@dataclass(frozen=True)
class ProcessSpec:
    """One kind of process and how many of it this host starts: one of each of `ranks`.

    `command`: without the interpreter. `numbered`: more of it, in which {rank} and {name} stand for those of the
    process. `phase`: 0 for what starts at once, 1 for what starts when all services of all hosts are served; the run
    is over when all that started in phase 1, anywhere, is done. `stop_order`: those of 0 are stopped first.
    `setting`: what a person calls the number of them, where it may be changed while the run lasts. `forked`: it may be
    forked from a process that has imported what most roles need (workers/servers/fork_server.py). `longest`: s of grace
    that it gets at most where an update takes longer than `grace`. `answers`: it answers remote control.
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
    suffix: str = ""  # of the names: tells them from another host's
    single: bool = False  # there is one of it in the run, and its name is the role's alone
    num: int | None = None  # processes of it in the whole run; default: those of `ranks`
    forked: bool = False
    answers: bool = False

    def name(self, rank: int) -> str:
        """The process's name, and that of its log."""
        return self.role + ("" if self.single else f"-{rank}") + self.suffix

    def line(self, rank: int) -> list[str]:
        """The whole command line of one process."""
        numbered = [part.replace("{rank}", str(rank)).replace("{name}", self.name(rank)) for part in self.numbered]
        return [sys.executable, *self.command, *numbered]


@dataclass(frozen=True)
class ServersSpec:
    """Where the servers come from; see `workers.servers.acquire`."""

    mode: str = "auto"
    broker_url: str | None = field(default=None, repr=False)
    redis_url: str | None = field(default=None, repr=False)
    listen: str | None = None


@dataclass(frozen=True)
class RunSpec:
    """One launcher's share of one run.

    `host`: its name in the run; None where it is alone. `leads`: it opens the run, ends it and cleans up after it;
    others join. `hosts`: all that take part, the leader first. `waits_for_hosts`: nothing of phase 1 starts before all
    of them are there. `join_command`: what a person types on another host, {host} standing for its name. `card`: what
    those who join, and `python -m workers.runs`, are told of the run. `sweep`: the name may be that of an earlier run.
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

    @property
    def finite(self) -> bool:
        """Whether it is over when its processes of phase 1 are done."""
        return any(spec.phase for spec in self.processes)
