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


@dataclass(frozen=True)
class Job:
    """One finished run."""

    outcome: dict[str, Any]  # of outcome.json: state, steps, mean_return, seconds since the first environment step
    segments: dict[str, Any]  # of segments.json: what became of each
    points: Sequence[dict[str, Any]]  # of metrics.jsonl
    whole_s: float  # of the command, from its start to its end
    resident_mb: Sequence[float]  # of all its processes together, twice a second

    @property
    def steps_per_s(self) -> float:
        """From the first environment step to the end of the last update, everything included."""
        return float(self.outcome["steps"] / self.outcome["seconds"])

    @property
    def data_age(self) -> float:
        """Median over the updates: weight versions between the data's and those that learned from it."""
        return statistics.median(point["staleness"] for point in self.points)


@contextmanager
def own_servers() -> Iterator[tuple[Path, dict[str, str]]]:
    """Yield a folder for runs, and the URLs of private servers as variables; both are gone at the end."""
    with (
        tempfile.TemporaryDirectory(prefix="warren-bench-") as name,
        servers.acquire("private", folder=Path(name) / "servers") as found,
    ):
        yield Path(name), {"WARREN_BROKER_URL": found.broker_url, "WARREN_REDIS_URL": found.redis_url}


class TookTooLong(SystemExit):
    """A run has not ended in time."""


def train(
    folder: Path, trial: str, overrides: Sequence[str], servers: Mapping[str, str], patience: float = PATIENCE
) -> Job:
    """One run in FOLDER/throughput/TRIAL. `servers`: their URLs as environment variables; {}: servers of its own.

    Ends this program where the run fails: by TookTooLong, which may be caught, after `patience` s.
    """
    command = [sys.executable, "-m", "workers.train", *overrides, f"folder={folder}"]
    started = time.perf_counter()
    process = subprocess.Popen(
        [*command, "project=throughput", f"trial={trial}", *([] if servers else ["broker=private"])],
        env={**os.environ, **servers, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    resident: list[float] = []
    watching = threading.Thread(target=_watch, args=(process, resident))
    watching.start()
    try:
        printed, _ = process.communicate(timeout=max(0.0, patience))
    except subprocess.TimeoutExpired:
        process.kill()  # its guards end what it started
        raise TookTooLong(f"{trial} took longer than {patience:g} s") from None
    finally:
        watching.join()
    whole = time.perf_counter() - started
    if process.returncode != 0:
        sys.exit(f"{trial} failed with status {process.returncode}:\n{printed}")
    run = folder / "throughput" / trial
    outcome = json.loads((run / "outcome.json").read_text())
    account = run / "segments.json"  # of a streaming run
    segments = json.loads(account.read_text()) if account.exists() else {}
    return Job(outcome, segments, read_metrics(run), whole, resident)


def _watch(process: subprocess.Popen[str], resident: list[float]) -> None:
    while process.poll() is None:
        resident.append(sum(map(_resident, _family(process.pid))) / 1e6)
        time.sleep(POLL)


def _family(pid: int) -> list[int]:
    """Return a process and its children's children, this job's servers among them."""
    found = [pid]
    for parent in found:
        try:
            children = Path(f"/proc/{parent}/task/{parent}/children").read_text()
        except OSError:
            continue
        found += map(int, children.split())
    return found


def _resident(pid: int) -> int:
    """Bytes."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
    except (OSError, IndexError):
        return 0
