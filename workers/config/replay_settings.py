"""Settings of a replay."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class ReplayConfig:
    """Settings of a replay, for algorithms whose updates draw from one; its steps are environment steps."""

    capacity: int = 1_000_000  # steps that are kept; newer ones replace the oldest
    batch: int = 256  # sequences drawn per update
    samples_per_insert: float = 8.0  # sequences drawn per step stored; the faster side, learner or actors, waits
    error_buffer: float | None = None  # sequences that either side may be ahead; default: a segment's plus an update's
    begin_at: int = 10_000  # steps stored before the first update
    priority_exponent: float = 0.6  # 0: equal chances; this and the next two are for algorithms that draw by priority
    weight_exponent: float = 0.4  # exponent of the importance weights when the run begins
    weight_exponent_end: float = 1.0  # exponent of the importance weights when the run ends
    memory: float = 8.0  # GiB; the rest is in files in the run's folder
    in_checkpoint: bool = False  # write the replay with each checkpoint; else a resumed learner begins empty
    # A buffer of your own in place of Warren's: file.py:build or module:build (docs/algorithms.md)
    buffer: str | None = None
    buffer_settings: dict[str, Any] = field(default_factory=dict)  # given to the function that `buffer` names
