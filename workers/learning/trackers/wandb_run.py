"""A learner's figures in Weights & Biases, without a network: `wandb sync` sends its files later."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import Any

from workers.config.trackers import Tracked, Tracker


class WandbRun(Tracker):
    """An offline run in the learner's folder; WANDB_MODE=online sends it at once."""

    _run: Any = None

    def begin(self, tracked: Tracked) -> None:
        """Begin the run; a resumed run has the same id, so that both parts become one."""
        import wandb

        self._run = wandb.init(
            project=tracked.project,
            name=f"{tracked.run} {tracked.player}",
            id=hashlib.sha256(f"{tracked.folder.resolve()}".encode()).hexdigest()[:16],
            dir=str(tracked.folder),
            mode=os.environ.get("WANDB_MODE") or "offline",
            resume="allow",
            config=dict(tracked.hyperparameters),
            settings=wandb.Settings(silent=True, console="off", x_disable_stats=True, disable_git=True),
        )

    def point(self, figures: Mapping[str, Any], losses: Mapping[str, float]) -> None:
        """Log the figures at the steps of this update."""
        told = {name: value for name, value in figures.items() if value is not None}
        self._run.log({**told, **{f"loss/{name}": value for name, value in losses.items()}}, step=figures["steps"])

    def end(self, figures: Mapping[str, Any]) -> None:
        """Write the last figures as the run's summary, and close it."""
        if self._run is not None:
            self._run.summary.update({f"final/{name}": value for name, value in figures.items() if value is not None})
            self._run.finish()
