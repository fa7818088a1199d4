"""One run of Warren's whole distributed job, as a person would start it: launcher, learner, actors, broker, Redis."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import hydra
from hydra.core.global_hydra import GlobalHydra

from benchmarks.learning_curves import Curve
from workers.config.schema import CONF, Config, from_hydra
from workers.learning.metrics import read_metrics


def composed(overrides: Sequence[str]) -> Config:
    """The configuration of `python -m workers.train OVERRIDES`. Raises what Hydra raises for wrong ones."""
    with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        try:
            return from_hydra(hydra.compose("train", list(overrides)))
        finally:
            GlobalHydra.instance().clear()


def train(
    folder: Path, trial: str, overrides: Sequence[str], servers: Mapping[str, str], patience: float
) -> tuple[dict[str, Any], Curve]:
    """(outcome.json, the curve) of a run in FOLDER/learning/TRIAL; `servers`: their URLs, as environment variables.

    Ends this program where the run fails, or takes longer than `patience` seconds.
    """
    command = [sys.executable, "-m", "workers.train", *overrides, f"folder={folder}", "project=learning"]
    try:
        done = subprocess.run(
            [*command, f"trial={trial}"],
            env={**os.environ, **servers}, timeout=patience, capture_output=True, text=True, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        sys.exit(f"{trial} took longer than {patience:g} s")
    if done.returncode != 0:
        sys.exit(f"{trial} failed with status {done.returncode}:\n{done.stdout}{done.stderr}")
    run = folder / "learning" / trial
    outcome: dict[str, Any] = json.loads((run / "outcome.json").read_text())
    return outcome, [(p["steps"], p["mean_return"]) for p in read_metrics(run) if p["mean_return"] is not None]
