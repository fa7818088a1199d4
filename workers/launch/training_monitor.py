"""A training run as its launcher sees it: one learner's figures, the account of the segments, the outcome."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from tasks.events import STATUS, Subscription
from tasks.topology import Topology
from workers.config import plain_checks
from workers.config.schema import Config
from workers.launch.account import write_account
from workers.launch.figures import Figures, statuses
from workers.launch.folder import OUTCOME
from workers.launch.monitor import Context, Health
from workers.runtime.actor_count import count_key
from workers.runtime.ended import open_run
from workers.runtime.session import Session
from workers.ui import returns
from workers.ui.training_view import View


class TrainingMonitor:
    """See monitor.Monitor."""

    def __init__(self, config: Config, view: View, context: Context) -> None:
        self.config, self.view, self.context = config, view, context
        self.session = Session(config, context.broker_url, context.redis_url)
        self.figures = statuses()
        self._updates = UpdateTimes()
        self._subscription: Subscription | None = None
        self._check = CountCheck(config)

    @property
    def topology(self) -> Topology:
        return self.session.topology

    def begin(self) -> None:
        open_run(self.session)
        self._subscription = Subscription(
            self.session.app, self.topology, {STATUS: self.figures.receive}, subscriber="launcher"
        ).start()
        if self.config.flower_port is not None:
            self.context.say(f"Flower at http://{self.config.flower_address}:{self.config.flower_port}")

    def poll(self) -> str | None:
        self._updates.poll(self.figures)
        return None  # the learner knows, and its end is the run's

    def steps(self) -> Mapping[str, int]:
        return {"": self.figures.get("steps", 0)}

    def excused(self) -> Mapping[str, str]:
        return {}

    def show(self, health: Health) -> None:
        figures = self.figures if "steps" in self.figures else None
        self.view.show(figures, self.context.watch.depths, health.processes, health.notes)

    def update_seconds(self) -> float:
        return self._updates.longest

    def check_counts(self, counts: Mapping[str, int]) -> Sequence[str]:
        return self._check(counts)

    def keep_counts(self, counts: Mapping[str, int]) -> None:
        for setting, count in counts.items():
            self.session.redis.set(count_key(self.session, setting), count)

    def announce(self, state: str) -> None:
        pass  # the learner does

    def stop(self) -> None:
        if self._subscription is not None:
            self._subscription.stop()

    def account(self) -> None:
        write_account(self.session, self.topology, self.context)

    def outcome(self, state: str, seconds: float) -> dict[str, Any]:
        """The learner's own; where it could write none, what its last status said."""
        written = self.context.folder.read(OUTCOME)
        if written.get("state") in ("solved", "finished") or (state == "stopped" and "state" in written):
            return written
        figures = {"steps": self.figures.get("steps", 0), "mean_return": self.figures.get("mean_return")}
        ended = {"done": "finished"}.get(state, state)
        return {**figures, **written, "state": ended, "launcher_seconds": seconds}


class UpdateTimes:
    """How long updates take at most: the time between two weight versions that arrived one after the other."""

    def __init__(self) -> None:
        self._version, self._at, self.longest = -1, 0.0, 0.0

    def poll(self, figures: Figures) -> None:
        """Take note of a new version."""
        version, now = figures.get("version", -1), time.monotonic()
        if version != self._version:
            if 0 <= self._version < version:
                self.longest = max(0.9 * self.longest, (now - self._at) / (version - self._version))
            self._version, self._at = version, now


class CountCheck:
    """What is wrong with new numbers of processes, and was not wrong before (such as a port that this run uses)."""

    def __init__(self, config: Config) -> None:
        # Hosts name their own counts, which are not those of the whole run.
        self._config = replace(config, flower_port=None, hosts={}, host=None)

    def __call__(self, counts: Mapping[str, int]) -> list[str]:
        known = [*plain_checks.problems(self._config, "train")]
        changed = replace(self._config, **cast(dict[str, Any], dict(counts)))
        return [problem for problem in plain_checks.problems(changed, "train") if problem not in known]


def report_end(folder: Path, outcome: Mapping[str, Any], status: int, config: Config) -> int:
    """The outcome in one line, the last that is printed; the exit status."""
    curve = folder / "learning_curve.png"
    if curve.exists():
        print(f"learning curve {curve}")
    state, steps, mean = outcome.get("state", "killed"), outcome.get("steps", 0), outcome.get("mean_return")
    if state == "solved":
        print(
            f"solved: the mean return of the last 100 training episodes reached {config.env.goal:g} "
            f"({returns.shown(mean)}) after {steps:,} steps, "
            f"{outcome['seconds']:.1f} s after the first environment step"
        )
        return 0
    if state == "finished":
        short = "" if config.env.goal is None else f", short of the goal {config.env.goal:g}"
        print(f"finished: {steps:,} steps done; mean return of the last 100 episodes {returns.shown(mean)}{short}")
        return 0
    print(f"{state}; go on with: python -m workers.train resume={folder}", flush=True)
    return status or 1
