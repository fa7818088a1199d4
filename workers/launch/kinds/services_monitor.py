"""A run from a file as its launcher sees it: living processes and served calls. Also the share of any follower."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tasks.events.retained import Retained
from tasks.topology import Topology
from workers.launch.monitor import Context, Health
from workers.launch.spec import ProcessSpec
from workers.ui.run_view import CallCounts, RunView, Standing


class ShareMonitor:
    """The monitor of only this host's share of a run; see monitor.Monitor."""

    def __init__(self, view: RunView, context: Context) -> None:
        self.view, self.context = view, context

    @property
    def topology(self) -> Topology:
        return self.context.topology

    def begin(self) -> None:
        pass

    def poll(self) -> str | None:
        return None  # the launchers decide: all of phase 1 is done, or the leader has ended the run

    def steps(self) -> Mapping[str, int]:
        return {}

    def excused(self) -> Mapping[str, str]:
        return {}

    def show(self, health: Health) -> None:
        self.view.show(self.standings(), [], "; ".join(health.notes))

    def update_seconds(self) -> float:
        return 0.0

    def check_counts(self, counts: Mapping[str, int]) -> Sequence[str]:
        stop = f"python -m workers.runs stop {self.context.spec.run} ends the run"
        return [f"{name}: {number}: at least 1 has to stay; {stop}" for name, number in counts.items() if number < 1]

    def keep_counts(self, counts: Mapping[str, int]) -> None:
        pass

    def announce(self, state: str) -> None:
        pass

    def stop(self) -> None:
        pass

    def account(self) -> None:
        pass

    def outcome(self, state: str, seconds: float) -> dict[str, Any]:
        return {"state": state, "seconds": seconds}

    def standings(self) -> list[Standing]:
        """Return the state of each kind of process of this share."""
        standings = [self._standing(spec) for spec in self.context.spec.processes]
        return [one for one in standings if one.count or one.alive]

    def _standing(self, spec: ProcessSpec) -> Standing:
        children = self.context.supervisor.children
        started = any(one.spec.phase == spec.phase for one in children)
        processes = [one for one in children if one.spec is spec and not one.leaving]
        return Standing(
            spec.role,
            len(processes) if started else len(spec.ranks),
            sum(one.alive for one in processes),
            sum(one.done for one in processes),
            sum(one.restarts for one in processes),
            _last_line(processes[0].log) if spec.phase and processes else "",
        )


class ServicesMonitor(ShareMonitor):
    """The monitor of a run from a file, for leader and followers: with the calls of all services."""

    def __init__(self, view: RunView, context: Context) -> None:
        super().__init__(view, context)
        self._counts = CallCounts(context.app, context.topology)

    def begin(self) -> None:
        context = self.context
        if context.spec.leads:
            events, roles = context.spec.card["events"], context.spec.card["roles"]
            assert isinstance(events, list) and isinstance(roles, list)
            # Before any event is sent: an actor that starts after the learner still gets its first weights.
            Retained(context.app, context.topology).subscribe(events)
            if context.broker_kind == "rabbitmq":
                with context.app.connection_for_write() as connection, connection.channel() as channel:
                    for role in roles:
                        context.topology.dead_queue(role)(channel).declare()
        self._counts.start()

    def show(self, health: Health) -> None:
        self.view.show(self.standings(), self._counts.newest, "; ".join(health.notes))

    def stop(self) -> None:
        self._counts.stop()


def _last_line(log: Path) -> str:
    """Return the last line of a log, cut to the width of a terminal."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - 2048))
            lines = [line for line in stream.read().decode(errors="replace").splitlines() if line.strip()]
    except OSError:
        return ""
    return lines[-1][:120] if lines else ""
