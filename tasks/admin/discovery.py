"""The services that workers offer at the moment, with their load, asked for by Celery's remote control."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

from tasks.admin.registry import Directory
from tasks.topology import Topology

ANSWER_WITHIN = 1.0  # s that workers have to answer; one that is computing answers too, from another thread


@dataclass(frozen=True)
class Served:
    """One service as one worker serves it. `busy`: share of its time that the worker spent in services and handlers."""

    service: str
    worker: str
    host: str
    pid: int
    since: float  # Unix time
    busy: float
    waiting: int  # calls that the worker holds
    calls: int
    failed: int
    dropped: int  # calls that no client waited for any more
    refused: int  # messages that were not calls
    retried: int  # times that a call was sent to run again after an exception
    mean_batch: float
    error: str = ""  # the last failure of a call, and its place in the service's code


def discover(app: Any, within: float = ANSWER_WITHIN) -> list[Served]:
    """Ask all workers, for `within` s; return what they serve, sorted by service and worker."""
    # A new connection: the broker may have gone since the app's pooled ones were used last.
    with app.connection_for_write() as connection:
        replies = app.control.broadcast("services", reply=True, timeout=within, connection=connection) or []
    found = [
        _served(worker, status, name, counts)
        for reply in replies
        for worker, status in reply.items()
        if isinstance(status, dict) and "services" in status
        for name, counts in status["services"].items()
    ]
    return sorted(found, key=lambda served: (served.service, served.worker))


def unserved(app: Any, topology: Topology, served: list[Served]) -> list[str]:
    """Return the names of the run's services that no worker serves, sorted."""
    return sorted(set(Directory(app, topology).known()) - {one.service for one in served})


def as_dict(served: Served) -> dict[str, Any]:
    """Return `served` as a dict for JSON."""
    return asdict(served)


def describe(served: list[Served], missing: list[str]) -> list[tuple[str, ...]]:
    """Return rows of text: service, worker, host, pid, up, busy, waiting, calls, failed, dropped, refused,
    retried, mean batch.
    """
    rows = [
        (
            *(one.service, one.worker.partition("@")[0], one.host, str(one.pid)),
            *(duration(time.time() - one.since), f"{one.busy:.0%}", str(one.waiting)),
            *(f"{one.calls:,}", f"{one.failed:,}", f"{one.dropped:,}", f"{one.refused:,}", f"{one.retried:,}"),
            f"{one.mean_batch:.1f}",
        )
        for one in served
    ]
    return [*rows, *((name, "nobody", *[""] * 11) for name in missing)]


def failures(served: list[Served]) -> list[str]:
    """Return a line for each service and worker of which calls failed."""
    return [
        f"{one.service} failed {one.failed:,} times, last with {one.error}; "
        f"the full traceback is in logs/{one.worker.partition('@')[0]}.log of the run folder on {one.host}"
        for one in served
        if one.error
    ]


def duration(seconds: float) -> str:
    """Format a duration: "59 s", "12 min", "3.4 h"."""
    if seconds < 60:
        return f"{max(seconds, 0):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"


def _served(worker: str, status: dict[str, Any], name: str, counts: dict[str, Any]) -> Served:
    calls, batches = int(counts.get("calls", 0)), int(counts.get("batches", 0))
    return Served(
        name, worker, status["host"], status["pid"], status["since"], round(status["busy"], 4),
        int(counts.get("waiting", 0)), calls, int(counts.get("failed", 0)), int(counts.get("dropped", 0)),
        int(counts.get("refused", 0)), int(counts.get("retried", 0)),
        round(calls / batches, 2) if batches else 0.0,
        str(counts.get("error", "")),
    )  # fmt: skip
