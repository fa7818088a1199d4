"""What is particular to one kind of run: its queues and events, its figures, how it ends, its last lines.

training_monitor.py, league_monitor.py and services_monitor.py implement this; the launcher is the same for all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tasks.topology import Topology
from workers.launch.folder import RunFolder
from workers.launch.processes.supervisor import Supervisor
from workers.launch.spec import RunSpec
from workers.launch.watching.server_watch import ServerWatch


@dataclass
class Context:
    """What the launcher has, for its monitor. `watch` and `supervisor` belong to the launcher."""

    spec: RunSpec
    folder: RunFolder
    app: Any
    topology: Topology
    broker_url: str = field(repr=False)
    redis_url: str = field(repr=False)
    broker_kind: str
    supervisor: Supervisor
    watch: ServerWatch
    say: Callable[[str], None]


@dataclass(frozen=True)
class Health:
    """How the run's processes stand. `notes`: what is wrong or waited for, a line each."""

    processes: str
    notes: Sequence[str] = ()


class Monitor(Protocol):
    """One kind of run, seen by its leader."""

    @property
    def topology(self) -> Topology:
        """The run's names, with what was added since it began."""

    def begin(self) -> None:
        """Declare what has to be there before any process starts, and subscribe."""

    def poll(self) -> str | None:
        """Called often. How the run has ended ("solved", "finished"); None while it goes on."""

    def steps(self) -> Mapping[str, int]:
        """Player -> steps, for those who watch for stalls; empty where there are none."""

    def excused(self) -> Mapping[str, str]:
        """Player -> why it makes no steps and need not."""

    def show(self, health: Health) -> None:
        """Show the figures."""

    def update_seconds(self) -> float:
        """s that an update takes at most, as far as is known: what a learner may need to finish."""

    def check_counts(self, counts: Mapping[str, int]) -> Sequence[str]:
        """What is wrong with new numbers of processes."""

    def keep_counts(self, counts: Mapping[str, int]) -> None:
        """Put them where the run's roles look. Raises redis.RedisError."""

    def announce(self, state: str) -> None:
        """Tell roles that were started elsewhere that the run is over."""

    def stop(self) -> None:
        """Subscribe no more."""

    def account(self) -> None:
        """Once all processes are gone, and before the run is removed from the servers."""

    def outcome(self, state: str, seconds: float) -> dict[str, Any]:
        """What outcome.json is to hold."""
