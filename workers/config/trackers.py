"""Trackers of a run's figures, chosen by the setting `trackers`: built-in ones by name, the user's by file.py:NAME.

class Mine(Tracker):                                  # trackers=[tensorboard,my_tracker.py:Mine]
    def point(self, figures, losses):
        print(figures["steps"], figures["mean_return"])
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warren import user_code
from warren.errors import ConfigurationError, unknown_name

TENSORBOARD = "tensorboard"  # written by MetricsLog itself
BUILT_IN = {  # name -> (module, class, the package that it needs)
    "csv": ("workers.learning.trackers.csv_file", "CsvFile", None),
    "wandb": ("workers.learning.trackers.wandb_run", "WandbRun", "wandb"),
    "mlflow": ("workers.learning.trackers.mlflow_run", "MlflowRun", "mlflow"),
}


@dataclass(frozen=True)
class Tracked:
    """Facts about a learner that a tracker gets when it begins.

    `folder`: for its files. `last_version`: version of the weights that the learner continues from, -1 for a new
    learner; updates after it were lost. `hyperparameters`: the settings by dotted name, without secrets.
    """

    run: str
    player: str
    folder: Path
    project: str
    last_version: int
    hyperparameters: Mapping[str, Any]


class Tracker:
    """Base of trackers, which a learner's recorder thread calls. Exceptions are logged, and training continues."""

    def begin(self, tracked: Tracked) -> None:
        """Begin or continue the record of a learner."""

    def point(self, figures: Mapping[str, Any], losses: Mapping[str, float]) -> None:
        """Take the figures of an update, `steps` and `version` among them; None for those that are not known yet."""

    def end(self, figures: Mapping[str, Any]) -> None:
        """Take the last figures; {} where there was no update."""


def made(names: Sequence[str]) -> list[Tracker]:
    """Return the trackers of these names, leaving out TensorBoard. Raises ConfigurationError with all problems."""
    found, wrong = list[Tracker](), list[str]()
    for name in names:
        if name == TENSORBOARD:
            continue
        try:
            found.append(_made(name))
        except ConfigurationError as error:
            wrong += error.problems
    if wrong:
        raise ConfigurationError(wrong)
    return found


def problems(names: Sequence[str]) -> Iterator[str]:
    """Yield a sentence for each problem of the setting `trackers`."""
    try:
        made(names)
    except ConfigurationError as error:
        yield from (f"trackers: {problem}" for problem in error.problems)


def _made(name: str) -> Tracker:
    if name in BUILT_IN:
        module, kind, package = BUILT_IN[name]
        if package is not None and importlib.util.find_spec(package) is None:
            raise ConfigurationError(f"{package} is not installed; {user_code.install(package)}, or leave it out")
        tracker: Tracker = getattr(importlib.import_module(module), kind)()
        return tracker
    if not all(name.rpartition(":")):
        known = [TENSORBOARD, *BUILT_IN]
        raise ConfigurationError(unknown_name("tracker", name, known, "or your own: file.py:NAME"))
    factory = user_code.find("trackers", name)
    with user_code.blame(f"tracker {name!r}: making it"):
        one = factory()
    if not isinstance(one, Tracker):
        raise ConfigurationError(f"{name!r} is not a workers.config.trackers.Tracker; derive it from that")
    return one
