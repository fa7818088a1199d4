"""The contract of a monitor: the queues, events, figures and end that are particular to one kind of run.

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
    """The launcher's objects that its monitor uses. `watch` and `supervisor` belong to the launcher."""

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
    """The state of the run's processes. `notes`: troubles and reasons for waiting, a line each."""

    processes: str
    notes: Sequence[str] = ()


class Monitor(Protocol):
    """A kind of run, as its leader sees it."""

    @property
    def topology(self) -> Topology:
        """Return the run's names, with those added since its start."""

    def begin(self) -> None:
        """Declare the queues that have to exist before any process starts, and subscribe."""

    def poll(self) -> str | None:
        """Return how the run has ended ("solved", "finished"), or None while it goes on. Called often."""

    def steps(self) -> Mapping[str, int]:
        """Return player -> steps, by which stalls are detected; empty for a run without steps."""

    def excused(self) -> Mapping[str, str]:
        """Return player -> reason, for players that rightly make no steps."""

    def show(self, health: Health) -> None:
        """Show the figures."""

    def update_seconds(self) -> float:
        """Return the longest time of an update seen so far, in s, which a learner may need to finish."""

    def check_counts(self, counts: Mapping[str, int]) -> Sequence[str]:
        """Return the problems of new numbers of processes."""

    def keep_counts(self, counts: Mapping[str, int]) -> None:
        """Store the numbers where the run's roles read them. Raises redis.RedisError."""

    def announce(self, state: str) -> None:
        """Tell roles that were started elsewhere that the run is over."""

    def stop(self) -> None:
        """Stop the subscriptions."""

    def account(self) -> None:
        """Write the run's account: called when all processes are gone, before the run is removed from the servers."""

    def outcome(self, state: str, seconds: float) -> dict[str, Any]:
        """Return the content of outcome.json."""
