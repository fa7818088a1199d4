"""A learner's figures in MLflow's file store: `mlflow ui --backend-store-uri FOLDER/mlruns` shows them."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from warren.files import write_whole
from workers.config.trackers import Tracked, Tracker

STORE, RUN = "mlruns", "mlflow_run"  # folder beside the learner's files; file with the run's id
LONGEST = 500  # characters of a hyperparameter


class MlflowRun(Tracker):
    """A run of the experiment with the project's name; MLFLOW_TRACKING_URI sends it elsewhere."""

    _client: Any = None
    _id = ""

    def begin(self, tracked: Tracked) -> None:
        """Begin the run, or go on with the one whose id the folder holds."""
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # MLflow asks for it from version 3 on
        from mlflow import MlflowClient

        store = tracked.folder.resolve() / STORE
        self._client = MlflowClient(os.environ.get("MLFLOW_TRACKING_URI") or store.as_uri())
        kept = tracked.folder / RUN
        if kept.exists():
            self._id = kept.read_text(encoding="utf-8").strip()
            self._client.update_run(self._id, status="RUNNING")
            return
        found = self._client.get_experiment_by_name(tracked.project)
        experiment = found.experiment_id if found else self._client.create_experiment(tracked.project)
        made = self._client.create_run(experiment, run_name=f"{tracked.run} {tracked.player}")
        self._id = made.info.run_id
        write_whole(Path(kept), self._id)
        for name, value in tracked.hyperparameters.items():
            self._client.log_param(self._id, name, str(value)[:LONGEST])

    def point(self, figures: Mapping[str, Any], losses: Mapping[str, float]) -> None:
        """Log the figures at the steps of this update."""
        self._log({**figures, **{f"loss/{name}": value for name, value in losses.items()}}, int(figures["steps"]))

    def end(self, figures: Mapping[str, Any]) -> None:
        """Log the last figures once more as final ones, and close the run."""
        if self._id:
            self._log({f"final/{name}": value for name, value in figures.items()}, int(figures.get("steps", 0)))
            self._client.set_terminated(self._id)

    def _log(self, values: Mapping[str, Any], step: int) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        numbers = {name: value for name, value in values.items() if isinstance(value, int | float)}
        self._client.log_batch(self._id, [Metric(name, float(value), now, step) for name, value in numbers.items()])
