"""A gateway's metrics for Prometheus: requests by status, seconds per answer, and the gateway's figures."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from itertools import accumulate
from typing import Any

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)  # s, of the histogram
PREFIX = "warren_gateway_"
# Facts that only grow; the other numbers are gauges.
COUNTERS = frozenset(
    ("decisions", "dropped", "episodes", "failed", "passes", "reaped", "refused_versions", "seconds_in_passes")
)
OWN = "/metrics/process"  # path of one process's own snapshot, as JSON, for the processes that share its port

Snapshot = dict[str, Any]  # one process's, as Metrics.snapshot gives it: JSON
Gather = Callable[[Snapshot], Awaitable[Mapping[str, Snapshot | None]]]  # of all processes, as `text` takes them


class Metrics:
    """Counts of requests, kept in the server's event loop."""

    def __init__(self) -> None:
        self._statuses: Counter[int] = Counter()
        self._within = [0] * (len(BOUNDS) + 1)
        self._seconds = 0.0

    def answered(self, status: int, seconds: float) -> None:
        """Count a request that was answered with `status` after `seconds`."""
        self._statuses[status] += 1
        self._within[bisect_left(BOUNDS, seconds)] += 1
        self._seconds += seconds

    def snapshot(self, facts: Mapping[str, Any]) -> Snapshot:
        """Return all samples; numbers among `facts` become samples, texts become labels of the sample `info`."""
        statuses = {str(status): count for status, count in sorted(self._statuses.items())}
        return {"statuses": statuses, "within": list(self._within), "seconds": self._seconds, "facts": dict(facts)}


async def alone(own: Snapshot) -> Mapping[str, Snapshot | None]:
    """Return the samples of a gateway that is a single process, which have no label for it."""
    return {"": own}


def text(processes: Mapping[str, Snapshot | None]) -> bytes:
    """Return Prometheus's text for process -> its samples, None if it does not answer; process "" gets no label."""
    return "".join(f"{line}\n" for line in _lines(processes)).encode()


def _lines(processes: Mapping[str, Snapshot | None]) -> Iterator[str]:
    parts = [(_process(name), counted) for name, counted in processes.items() if counted is not None]
    yield f"# TYPE {PREFIX}requests_total counter"
    for labels, counted in parts:
        for status, count in counted["statuses"].items():
            yield _sample("requests_total", {**labels, "status": status}, count)
    yield f"# TYPE {PREFIX}answer_seconds histogram"
    for labels, counted in parts:
        totals = list(accumulate(counted["within"]))
        for bound, total in zip([*BOUNDS, "+Inf"], totals, strict=True):
            yield _sample("answer_seconds_bucket", {**labels, "le": bound}, total)
        yield _sample("answer_seconds_sum", labels, counted["seconds"])
        yield _sample("answer_seconds_count", labels, totals[-1])
    for name in dict.fromkeys(name for _, counted in parts for name in counted["facts"]):
        values = [(labels, counted["facts"].get(name)) for labels, counted in parts]
        numbers = [(labels, value) for labels, value in values if isinstance(value, int | float)]
        if numbers:
            yield f"# TYPE {PREFIX}{name} {'counter' if name in COUNTERS else 'gauge'}"
        for labels, value in numbers:
            yield _sample(name, labels, value if isinstance(value, float) else int(value))
    yield f"# TYPE {PREFIX}info gauge"
    for labels, counted in parts:
        texts = {name: value for name, value in counted["facts"].items() if isinstance(value, str)}
        yield _sample("info", {**labels, **texts}, 1)
    if any(processes):
        yield f"# TYPE {PREFIX}up gauge"
    for name, of in processes.items():
        if name:
            yield _sample("up", _process(name), int(of is not None))


def _process(name: str) -> dict[str, str]:
    return {"process": name} if name else {}


def _sample(name: str, labels: Mapping[str, Any], value: Any) -> str:
    told = ",".join(f'{label}="{_escaped(str(text))}"' for label, text in labels.items())
    return f"{PREFIX}{name}{{{told}}} {value}" if told else f"{PREFIX}{name} {value}"


def _escaped(value: str) -> str:
    return re.sub(r'([\\"])', r"\\\1", value).replace("\n", r"\n")
