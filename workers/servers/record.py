"""The record of a run's servers, in a file of its folder that only the owner can read."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import yaml

from warren.errors import ConfigurationError, unknown_name
from warren.files import read_json, write_whole
from workers.servers.process import write_secret

FOLDER, FILE = "servers", "servers.json"
STARTED = "started.json"  # last start of the run's servers: {"started_at": s since 1970}; kept when they stop
RUNS = Path("runs")
SEARCH_DEPTH = 4  # levels of folders below RUNS that are searched


@dataclass(frozen=True)
class Record:
    """The record of one run; `node` is that of a private RabbitMQ (see private_rabbitmq.Node), else None."""

    broker_url: str = field(repr=False)
    redis_url: str = field(repr=False)
    kind: str
    description: str
    pid: int  # the process that acquired the servers; private ones end with it
    node: dict[str, Any] | None = None
    run: str | None = None  # the run's name on the servers, if known

    def write(self, run_folder: Path) -> None:
        """Write the record, and the time of the start, into the run's folder."""
        write_secret(run_folder / FOLDER / FILE, json.dumps(asdict(self), indent=2) + "\n")
        note_start(run_folder)


def note_start(run_folder: Path) -> None:
    """Write the time of a run's start into its folder."""
    write_whole(run_folder / STARTED, json.dumps({"started_at": time.time()}) + "\n")


def read(run_folder: Path) -> Record:
    """Read the record in a run's folder. Raises ConfigurationError if the run has no servers."""
    path = run_folder / FOLDER / FILE
    try:
        return Record(**json.loads(path.read_text(encoding="utf-8")))
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigurationError(f"{run_folder} has no running servers ({path} does not exist)") from None
    except PermissionError:
        raise ConfigurationError(f"{path} belongs to another user") from None
    except (ValueError, TypeError) as error:
        raise ConfigurationError(f"{path} is damaged: {error}") from None


def remove(run_folder: Path) -> None:
    """Remove the record of servers that are stopped."""
    with contextlib.suppress(FileNotFoundError):
        (run_folder / FOLDER / FILE).unlink()


def started_at(run_folder: Path) -> float | None:
    """Return the time of the last start of the run's servers, in s since 1970; None if unknown."""
    found = read_json(run_folder / STARTED).get("started_at")
    return float(found) if isinstance(found, int | float) else None


def newest(runs: Path = RUNS) -> Path:
    """Return the folder below `runs` of the run with servers that was started last.

    A run that goes on comes before those whose launcher was killed. Raises ConfigurationError if there is none.
    """
    found = folders(runs)
    if not found:
        raise ConfigurationError(f"no run below {runs.resolve()} has running servers; name one with --run FOLDER")
    return max(found, key=lambda folder: (_is_running(folder), started_at(folder) or 0.0))


def folder_of(run: str, runs: Path = RUNS) -> Path:
    """Return the folder of a run with servers; `run` is that folder or the run's name.

    Raises ConfigurationError if there is no such folder below `runs`.
    """
    if (Path(run) / FOLDER / FILE).exists():
        return Path(run)
    known: dict[str, Path] = {}
    for folder in sorted(folders(runs), key=lambda one: started_at(one) or 0.0):
        with contextlib.suppress(ConfigurationError):
            if name := name_of(folder):
                known[name] = folder
    if run not in known and Path(run).is_dir():
        read(Path(run))  # raises
    if run not in known:
        raise ConfigurationError(
            unknown_name(
                "run", run, [*known, *map(str, known.values())], f"(below {runs.resolve()}; a name or a folder)"
            )
        )
    return known[run]


def name_of(run_folder: Path) -> str | None:
    """Return the name that the run in a folder has on its servers. Raises ConfigurationError, as `read` does."""
    named = read(run_folder).run
    if named is None and (config := run_folder / "config.yaml").exists():
        named = (yaml.safe_load(config.read_text(encoding="utf-8")) or {}).get("run")
    return named


def _is_running(run_folder: Path) -> bool:
    try:
        return runs_on(read(run_folder))
    except ConfigurationError:
        return False


def folders(runs: Path = RUNS) -> list[Path]:
    """Return the run folders below `runs` that hold a record."""
    return [path.parent.parent for path in _records(runs)]


def _records(runs: Path) -> Iterator[Path]:
    for depth in range(SEARCH_DEPTH + 1):
        yield from runs.glob("*/" * depth + f"{FOLDER}/{FILE}")


def runs_on(record: Record) -> bool:
    """Return whether the process that acquired the servers still runs."""
    try:
        os.kill(record.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
