"""The folder of a run, and default names of runs."""

from __future__ import annotations

import re
import time
import uuid
from pathlib import Path

from workers.config.schema import Config

BEST = "best"  # folder inside a run's folder: the weights of its best evaluation


def run_folder(config: Config) -> Path:
    """Return FOLDER/PROJECT/TRIAL; the trial has to be set."""
    assert config.trial is not None
    return Path(config.folder) / config.project / config.trial


def name_run(config: Config) -> None:
    """Set the trial and the run's name on the servers, where they are not given."""
    if config.trial is None:
        config.trial = f"{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:4]}"
    if config.run is None and config.hosts:  # other hosts have to know the name
        config.run = re.sub(r"[^A-Za-z0-9_-]+", "-", config.project).strip("-")[:60] or "run"
    if config.run is None:
        # Two trials of the same name, on two machines or in two folders, must not meet on shared servers.
        name = re.sub(r"[^A-Za-z0-9_-]+", "-", f"{config.project}-{config.trial}").strip("-")
        config.run = f"{name[:60]}-{uuid.uuid4().hex[:6]}"
