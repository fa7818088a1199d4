"""Ratios of two sides that are measured in the same rounds, with their intervals.

A disturbance of the machine in a round falls on both sides, so rounds are compared one by one.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from scipy import stats

CONFIDENCE = 0.95


def with_intervals(rounds: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Return each NAME's median, and from two rounds on NAME_interval and NAME_p.

    `rounds`: NAME -> a ratio per round, each above 0. The interval holds the mean ratio (geometric) with a confidence
    of 95 %, and p tells how often chance alone sets the two sides as far apart; both by Student's t on the logarithms.
    """
    found: dict[str, Any] = {}
    for name, ratios in rounds.items():
        found[name] = round(statistics.median(ratios), 3)
        if len(ratios) < 2:
            continue
        logs = [math.log(ratio) for ratio in ratios]
        mean, error = statistics.fmean(logs), statistics.stdev(logs) / math.sqrt(len(logs))
        reach = error * float(stats.t.ppf(0.5 + CONFIDENCE / 2.0, len(logs) - 1))
        found[f"{name}_interval"] = [round(math.exp(bound), 3) for bound in (mean - reach, mean + reach)]
        found[f"{name}_p"] = round(_p(mean, error, len(logs)), 4)
    return found


def _p(mean: float, error: float, count: int) -> float:
    """Return the two-sided p of a mean that differs from 0."""
    if error == 0.0:
        return 0.0 if mean else 1.0
    return float(2.0 * stats.t.sf(abs(mean) / error, count - 1))
