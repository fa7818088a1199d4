"""Warren's whole jobs for `benchmarks.throughput`: launcher, learner, actors, servers, as a person starts them."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers import servers
from workers.learning.metrics import read_metrics

PATIENCE = 500.0  # s
POLL = 0.5  # s
PAGE = os.sysconf("SC_PAGE_SIZE")
TICKS = os.sysconf("SC_CLK_TCK")
# part -> what its command line contains; the first that matches counts
PARTS = {
    "learner": "workers.learner",
    "actors": "workers.actor",
    "launcher": "workers.train",
    "rabbitmq": "beam",
    "redis": "redis-server",
}


@dataclass(frozen=True)
class Job:
    """One finished run."""

    outcome: dict[str, Any]  # outcome.json: state, steps, mean_return, seconds since the first environment step
    segments: dict[str, Any]  # segments.json: the fate of each
    points: Sequence[dict[str, Any]]  # metrics.jsonl
    whole_s: float  # s of the whole command
    resident_mb: Sequence[float]  # MB of all its processes together, twice a second
    cpu_s: Mapping[str, float]  # part (see PARTS) -> seconds of a core, those of its servers too

    @property
    def steps_per_s(self) -> float:
        """Steps/s from the first environment step to the end of the last update, with everything included."""
        return float(self.outcome["steps"] / self.outcome["seconds"])

    @property
    def data_age(self) -> float:
        """Median over the updates of the weight versions made between acting and learning."""
        return statistics.median(point["staleness"] for point in self.points)


@contextmanager
def own_servers() -> Iterator[tuple[Path, dict[str, str]]]:
    """Yield a folder for runs, and the URLs of private servers as variables; both are removed at the end."""
    with (
        tempfile.TemporaryDirectory(prefix="warren-bench-") as name,
        servers.acquire("private", folder=Path(name) / "servers") as found,
    ):
        yield Path(name), {"WARREN_BROKER_URL": found.broker_url, "WARREN_REDIS_URL": found.redis_url}


class TookTooLong(SystemExit):
    """Raised for a run that has not ended in time."""


def train(
    folder: Path, trial: str, overrides: Sequence[str], servers: Mapping[str, str], patience: float = PATIENCE
) -> Job:
    """Make one run in FOLDER/throughput/TRIAL. `servers`: their URLs as environment variables; {}: servers of its own.

    Ends this program if the run fails; after `patience` s by TookTooLong, which may be caught.
    """
    command = [sys.executable, "-m", "workers.train", *overrides, f"folder={folder}"]
    started = time.perf_counter()
    process = subprocess.Popen(
        [*command, "project=throughput", f"trial={trial}", *([] if servers else ["broker=private"])],
        env={**os.environ, **servers, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    seen = Watched()
    watching = threading.Thread(target=seen.watch, args=(process,))
    watching.start()
    try:
        printed, _ = process.communicate(timeout=max(0.0, patience))
        whole = time.perf_counter() - started
    except subprocess.TimeoutExpired:
        process.kill()  # the run's guards end the processes that it started
        raise TookTooLong(f"{trial} took longer than {patience:g} s") from None
    finally:
        watching.join()
    if process.returncode != 0:
        sys.exit(f"{trial} failed with status {process.returncode}:\n{printed}")
    run = folder / "throughput" / trial
    outcome = json.loads((run / "outcome.json").read_text())
    account = run / "segments.json"  # a streaming run's
    segments = json.loads(account.read_text()) if account.exists() else {}
    return Job(outcome, segments, read_metrics(run), whole, seen.resident_mb, seen.cpu_s())


class Watched:
    """The memory and the CPU time of a run's processes, measured twice a second."""

    def __init__(self) -> None:
        self.resident_mb: list[float] = []
        self._first: dict[int, float] = {}  # s of processes from before: servers that several runs share
        self._last: dict[int, tuple[str, float]] = {}

    def watch(self, process: subprocess.Popen[str]) -> None:
        """Measure until `process` has ended."""
        self._first = {pid: cpu for pid, (_, cpu) in self._costs().items()}
        while process.poll() is None:
            self.resident_mb.append(sum(map(_resident, _family(process.pid))) / 1e6)
            self._last |= self._costs()
            time.sleep(POLL)

    def cpu_s(self) -> dict[str, float]:
        """Return the seconds of each part at its last measurement; a process that lives very shortly may be missed."""
        parts = dict.fromkeys(PARTS, 0.0)
        for pid, (part, cpu) in self._last.items():
            parts[part] += cpu - self._first.get(pid, 0.0)
        return parts

    @staticmethod
    def _costs() -> dict[int, tuple[str, float]]:
        return {pid: cost for pid in _family(os.getpid()) if (cost := _cpu(pid)) is not None}


def _family(pid: int) -> list[int]:
    """Return a process and all its descendants, this job's servers among them."""
    found = [pid]
    for parent in found:
        try:
            children = Path(f"/proc/{parent}/task/{parent}/children").read_text()
        except OSError:
            continue
        found += map(int, children.split())
    return found


def _resident(pid: int) -> int:
    """Return the resident bytes of a process; 0 if it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
    except (OSError, IndexError):
        return 0


def _cpu(pid: int) -> tuple[str, float] | None:
    """Return a process's part and its seconds of CPU time; None if it belongs to no part or has ended."""
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
        part = next((part for part, word in PARTS.items() if word in line), None)
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if part is None else (part, (int(fields[11]) + int(fields[12])) / TICKS)
