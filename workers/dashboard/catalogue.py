"""The runs below a folder, by name; a page may ask for these alone, so its names cannot lead elsewhere."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from league.state.replay import STREAM
from warren.errors import ConfigurationError, UnknownName
from warren.files import read_json
from workers.launch.processes import failure_log
from workers.launch.processes.failure import failure_in, tail
from workers.servers import record

DEPTH = 4  # levels of folders that are searched for runs
RUNS = 2000  # runs that are listed, at most
FAILURES = 500  # newest failures that are shown, at most
SECRETS = ("password", "token", "secret", "url")  # parts of settings' names whose values are not shown


@dataclass(frozen=True)
class Run:
    """A run's folder, and the run's name in addresses."""

    name: str
    folder: Path

    @property
    def is_league(self) -> bool:
        """Return True for a league's run, saved or about to be."""
        return (self.folder / "league" / STREAM).exists() or bool(self.settings().get("league"))

    @property
    def league(self) -> Path:
        """The folder that the league is saved in."""
        return self.folder / "league"

    def settings(self) -> dict[str, Any]:
        """Return its configuration; {} if it has none or it cannot be read."""
        try:
            found = yaml.safe_load((self.folder / "config.yaml").read_text(encoding="utf-8"))
        except (OSError, ValueError, yaml.YAMLError):
            return {}
        return found if isinstance(found, dict) else {}

    def goes_on(self) -> bool:
        """Return True while its servers run."""
        try:
            return record.runs_on(record.read(self.folder))
        except ConfigurationError:
            return False

    def summary(self) -> dict[str, Any]:
        """Return a line of the list of runs."""
        outcome, settings = read_json(self.folder / "outcome.json"), self.settings()
        league, env = settings.get("league"), settings.get("env")
        game = league.get("env") if isinstance(league, dict) else env.get("id") if isinstance(env, dict) else env
        live = self.goes_on()
        return {
            "run": self.name,
            "kind": "league" if self.is_league else "plain",
            "game": game,
            "state": "running" if live else outcome.get("state", "stopped"),
            "live": live,
            "started": record.started_at(self.folder),
            "steps": outcome.get("steps"),
            "seconds": outcome.get("seconds"),
        }


class Catalogue:
    """The runs below `root`, or the run in `root` itself. Raises ConfigurationError if `root` is not a folder."""

    def __init__(self, root: Path) -> None:
        if not root.is_dir():
            raise ConfigurationError(
                f"{root}: is no folder; name a run's folder, or one with runs below it, as in runs"
            )
        self.root = root.resolve()

    def runs(self) -> list[Run]:
        """Return the runs, the latest start first."""
        if (self.root / "config.yaml").is_file() or (self.root / "league" / STREAM).is_file():
            return [Run(self.root.name, self.root)]
        found = set[Path]()
        for depth in range(1, DEPTH + 1):
            for name in ("config.yaml", f"league/{STREAM}"):
                found.update(path.parents[name.count("/")] for path in self.root.glob("*/" * depth + name))
        # A tracker's folder inside a run is not a run.
        outer = (folder for folder in found if not found.intersection(folder.parents))
        runs = [Run(folder.relative_to(self.root).as_posix(), folder) for folder in outer]
        return sorted(runs, key=lambda run: (-(record.started_at(run.folder) or 0.0), run.name))[:RUNS]

    def run(self, name: str) -> Run:
        """Return the listed run of this name. Raises UnknownName for any other name, even if it is a run's path."""
        runs = {run.name: run for run in self.runs()}
        if name not in runs:
            raise UnknownName("run", name, list(runs)[:20], f"below {self.root}")
        return runs[name]


def hyperparameters(settings: Mapping[str, Any], before: str = "") -> dict[str, str]:
    """Return settings by dotted names, without those that may hold a secret."""
    found: dict[str, str] = {}
    for name, value in settings.items():
        full = f"{before}{name}"
        if isinstance(value, Mapping) and value:
            found |= hyperparameters(value, f"{full}.")
        elif value is not None and not any(part in str(name).lower() for part in SECRETS):
            found[full] = value if isinstance(value, str) else json.dumps(value, default=str)
    return found


def failures(folder: Path) -> list[dict[str, Any]]:
    """Return the run's recorded failures, the newest first; if none is recorded, the last failure in each log."""
    kept = list(failure_log.read(folder))[-FAILURES:]
    names = ("time", "cause", "where", "then", "status")
    if kept:
        return [{"process": one.get("name"), **{name: one.get(name) for name in names}} for one in reversed(kept)]
    found = []
    for log in sorted((folder / "logs").glob("*.log")):
        try:
            failure, when = failure_in(tail(log)), log.stat().st_mtime
        except OSError:
            continue
        if failure is not None:
            cause = {"process": log.stem, "time": when, "cause": failure.error, "where": failure.where}
            found.append({**cause, "then": "the last one that its log tells of", "status": None})
    return sorted(found, key=lambda one: -float(one["time"]))


def account(folder: Path) -> dict[str, Any]:
    """Return the account of segments that the run wrote at its end; {} before."""
    found = read_json(folder / "segments.json")
    return {name: value for name, value in found.items() if isinstance(value, int)}
