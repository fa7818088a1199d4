"""Thresholds of a player: a number of decisions that it has made, or a share of its run."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

SHARE = re.compile(r"(\d+(?:\.\d+)?)\s*%")


@dataclass(frozen=True)
class RunShare:
    """A part of the run's budget, above 0 and up to 100 percent; written as in `2%`."""

    percent: float

    def __str__(self) -> str:
        return f"{self.percent:g}%"

    @classmethod
    def parse(cls, text: str) -> RunShare | None:
        """Return the share that `text` writes, as in 2%; None for any other text."""
        found = SHARE.fullmatch(text.strip())
        percent = float(found[1]) if found else 0.0
        return cls(percent) if 0.0 < percent <= 100.0 else None

    def steps(self, run: float) -> int:
        """Return the share as steps of a player that makes `run` steps in the whole run."""
        return math.ceil(self.percent / 100.0 * run - 1e-6)


Steps = int | RunShare  # decisions of a player


def reached(steps: int, threshold: Steps) -> bool:
    """Return True if `steps` reach a threshold; a share is not reached while the length of the run is unknown."""
    return not isinstance(threshold, RunShare) and steps >= threshold


def amount(threshold: Steps) -> float:
    """Return the number in a threshold: steps, or percent."""
    return threshold.percent if isinstance(threshold, RunShare) else threshold


def parse_steps(value: object) -> Steps | None:
    """Return the threshold in a setting's `value`; None if it is neither whole steps from 0 on nor a share."""
    if isinstance(value, str):
        return RunShare.parse(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or value % 1:  # NaN and infinity too
        return None
    return int(value) if value >= 0 else None
