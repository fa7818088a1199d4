"""A training run as its launcher sees it: one learner's figures, the account of the segments, the outcome."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tasks.events import EVALUATION, STATUS, Subscription
from workers.config.run_names import BEST
from workers.config.schema import Config
from workers.launch.folder import OUTCOME
from workers.launch.kinds.configured import ConfiguredMonitor
from workers.launch.kinds.learning_times import LearningClock, UpdateTimes
from workers.launch.monitor import Context, Health
from workers.launch.watching.figures import Troubles, evaluations, statuses
from workers.learning.metrics import EVALUATIONS, read_metrics
from workers.ui import returns
from workers.ui.training_view import View


class TrainingMonitor(ConfiguredMonitor):
    """The monitor of a training run; see monitor.Monitor."""

    def __init__(self, config: Config, view: View, context: Context) -> None:
        super().__init__(config, context)
        self.view = view
        self.figures, self.evaluated = statuses(), evaluations()
        self._updates, self._clock, self._troubles = UpdateTimes(), LearningClock(), Troubles(context.say)
        self._subscription: Subscription | None = None

    def begin(self) -> None:
        super().begin()
        self._subscription = Subscription(
            self.session.app,
            self.topology,
            {STATUS: self.figures.receive, EVALUATION: self.evaluated.receive},
            subscriber="launcher",
        ).start()

    def poll(self) -> str | None:
        self._updates.poll(self.figures)
        self._troubles.poll("learner", self.figures)
        self._clock.poll(self.steps())
        if self.config.seconds is not None and self._clock.seconds >= self.config.seconds:
            return "finished"
        return None  # the learner checks the goal and total_steps, and its end is the run's

    def steps(self) -> Mapping[str, int]:
        return {"": self.figures.get("steps", 0)}

    def excused(self) -> Mapping[str, str]:
        return {}

    def show(self, health: Health) -> None:
        figures = {**self.figures, "evaluated": self.evaluated} if "steps" in self.figures else None
        self.view.show(figures, self.context.watch.depths, health.processes, health.notes)

    def update_seconds(self) -> float:
        return self._updates.longest

    def announce(self, state: str) -> None:
        pass  # the learner does

    def stop(self) -> None:
        if self._subscription is not None:
            self._subscription.stop()

    def outcome(self, state: str, seconds: float) -> dict[str, Any]:
        """Return the learner's own outcome or, if it wrote none, its last status."""
        written = self.context.folder.read(OUTCOME)
        if written.get("state") in ("solved", "finished") or (state == "stopped" and "state" in written):
            return written
        figures = {"steps": self.figures.get("steps", 0), "mean_return": self.figures.get("mean_return")}
        figures["seconds"] = self.figures.get("training_seconds", 0.0)
        ended = {"done": "finished"}.get(state, state)
        return {**figures, **written, "state": ended, "launcher_seconds": seconds}


def report_end(folder: Path, outcome: Mapping[str, Any], status: int, config: Config) -> int:
    """Print the outcome in one line, the last of a run; return the exit status."""
    curve = folder / "learning_curve.png"
    if curve.exists():
        print(f"learning curve {curve}")
    best = max(read_metrics(folder, EVALUATIONS), key=lambda point: point["mean_return"], default=None)
    if best is not None:
        kept = f", kept: python -m workers.play {folder} --best" if (folder / BEST).is_dir() else ""
        print(f"best evaluation {returns.shown(best['mean_return'])} after {best['steps']:,} steps{kept}")
    state, steps, mean = outcome.get("state", "killed"), outcome.get("steps", 0), outcome.get("mean_return")
    if state == "solved":
        print(
            f"solved: the mean return of the last {config.env.goal_episodes} training episodes "
            f"reached {config.env.goal:g} ({returns.shown(mean)}) after {steps:,} steps, "
            f"{outcome['seconds']:.1f} s after the first environment step"
        )
        return 0
    if state == "finished":
        short = "" if config.env.goal is None else f", short of the goal {config.env.goal:g}"
        told = f"mean return of the last {config.env.goal_episodes} episodes {returns.shown(mean)}{short}"
        print(f"finished: {steps:,} steps done; {told}")
        return 0
    print(f"{state}; go on with: python -m workers.train resume={folder}", flush=True)
    return status or 1
