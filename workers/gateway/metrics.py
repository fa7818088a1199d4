"""How a gateway answers, for Prometheus: requests by status, how long answers took, and the gateway's figures."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)  # s, of the histogram
PREFIX = "warren_gateway_"


class Metrics:
    """Counts, in the server's event loop."""

    def __init__(self) -> None:
        self._statuses: Counter[int] = Counter()
        self._within = [0] * (len(BOUNDS) + 1)
        self._seconds = 0.0

    def answered(self, status: int, seconds: float) -> None:
        """A request got its answer."""
        self._statuses[status] += 1
        self._within[bisect_left(BOUNDS, seconds)] += 1
        self._seconds += seconds

    def text(self, facts: Mapping[str, Any]) -> bytes:
        """Prometheus's text format; numbers among `facts` are samples, texts the labels of one called info."""
        return "".join(f"{line}\n" for line in self._lines(facts)).encode()

    def _lines(self, facts: Mapping[str, Any]) -> Iterator[str]:
        yield f"# TYPE {PREFIX}requests_total counter"
        for status, count in sorted(self._statuses.items()):
            yield f'{PREFIX}requests_total{{status="{status}"}} {count}'
        yield f"# TYPE {PREFIX}answer_seconds histogram"
        total = 0
        for bound, count in zip([*BOUNDS, "+Inf"], self._within, strict=True):
            total += count
            yield f'{PREFIX}answer_seconds_bucket{{le="{bound}"}} {total}'
        yield f"{PREFIX}answer_seconds_sum {self._seconds}"
        yield f"{PREFIX}answer_seconds_count {total}"
        for name, value in facts.items():
            if isinstance(value, int | float):
                yield f"{PREFIX}{name} {float(value):g}" if isinstance(value, float) else f"{PREFIX}{name} {int(value)}"
        labels = ",".join(f'{name}="{_escaped(value)}"' for name, value in facts.items() if isinstance(value, str))
        yield f"{PREFIX}info{{{labels}}} 1"


def _escaped(value: str) -> str:
    return re.sub(r'([\\"])', r"\\\1", value).replace("\n", r"\n")
