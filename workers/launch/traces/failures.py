"""The command line of a run's failures, from its folder: which process failed, when, why, and what became of it."""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.text import Text

from league.cli.tables import output, table
from warren.errors import ConfigurationError
from workers.config.command_line import guarded
from workers.launch.processes.failure_log import FILE, read
from workers.servers import record
from workers.servers.process import explain_status
from workers.ui.letter_texts import plain

MARKS = ("config.yaml", record.STARTED, FILE)  # a folder with one of these files is a run's


def find(folder: Path) -> Path:
    """Return `folder`, if it is a run's, or the run below it that was started last. Raises ConfigurationError."""
    if any((folder / mark).is_file() for mark in MARKS):
        return folder
    runs = {path.parent for pattern in ("*", "*/*") for mark in MARKS for path in folder.glob(f"{pattern}/{mark}")}
    if not runs:
        raise ConfigurationError(f"{folder} holds no run; name a run's folder, as in runs/cartpole/TRIAL")
    return max(runs, key=lambda run: (record.started_at(run) or 0.0, run.name))


def show(options: argparse.Namespace) -> int:
    """Print the failures; return exit status 0."""
    folder = find(options.folder)
    found = [one for one in read(folder) if not options.of or str(one.get("name")).startswith(options.of)]
    if options.json:
        print(json.dumps({"folder": str(folder), "failures": found}, indent=1))
        return 0
    print(f"run folder {folder}")
    if not found:
        print("nothing failed" if not options.of else f"nothing failed whose name begins with {options.of}")
        return 0
    if options.said:
        for one in found:
            _print_whole(one)
        return 0
    console = output()
    columns: dict[str, list[str | Text]] = {
        "time": [_moment(one) for one in found],
        "process": [plain(one.get("name", "?")) for one in found],
        ">lived": ["" if one.get("lived") is None else f"{one['lived']:.0f} s" for one in found],
        "cause": [_cause(one) for one in found],
        "then": [plain(_first_line(one.get("then"))) for one in found],
    }
    console.print(table(columns, console.width, (">lived",)))
    counts = Counter(str(one.get("name")) for one in found)
    print(f"{len(found)} failures: " + ", ".join(f"{plain(name)} {count}" for name, count in counts.most_common(10)))
    return 0


def _print_whole(one: Mapping[str, Any]) -> None:
    print(f"{_moment(one)} {plain(one.get('name', '?'))} on {plain(one.get('host', '?'))}: {_cause(one)}")
    for line in f"{one.get('said') or ''}\n{one.get('then') or ''}".splitlines():
        if line.strip():
            print(f"    {plain(line.strip())}")


def _cause(one: Mapping[str, Any]) -> str:
    where = f" ({one['where']})" if one.get("where") else ""
    status = one.get("status")
    ended = f"status {explain_status(status)}: " if isinstance(status, int) else ""
    return plain(f"{ended}{_first_line(one.get('cause'))}{where}")


def _first_line(text: Any) -> str:
    return next((line.strip() for line in str(text or "").splitlines() if line.strip()), "")


def _moment(one: Mapping[str, Any]) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one.get("time", 0)))


def main(description: str | None = None, arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m workers.failures",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "folder", nargs="?", type=Path, default=record.RUNS, help="a run's, or one of runs: the newest; default: runs"
    )
    parser.add_argument("--of", metavar="NAME", default="", help="only of processes whose names begin so, as in actor-")
    parser.add_argument("--said", action="store_true", help="with the last lines of each")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    return guarded(lambda: show(options))
