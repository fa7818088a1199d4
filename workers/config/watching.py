"""Settings for watching a run: evaluations beside it, metrics for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

LOG_FORMATS = ("text", "json")


@dataclass
class EvaluationConfig:
    """Settings of the evaluator of a run without a league, which plays whole episodes beside training."""

    every: int | None = None  # environment steps between two evaluations of the newest weights; null: none
    episodes: int = 10  # per evaluation, by the likeliest actions, always from the same seeds
    keep_best: bool = False  # keep the weights of the best evaluation in the run's folder `best`


@dataclass
class MetricsConfig:
    """Settings of the endpoint for Prometheus, of a launcher with all of its processes or of a role by itself."""

    port: int | None = None  # port of /metrics for Prometheus; 0: any free one; null: none
    address: str = "127.0.0.1"  # address of that port; 0.0.0.0: other machines can read it too


def problems(metrics: MetricsConfig, log_format: str) -> Iterator[str]:
    """Yield a sentence for each invalid value."""
    if metrics.port is not None and not 0 <= metrics.port < 65536:
        yield f"metrics.port: {metrics.port} is not a port; it must be from 1 to 65535, 0 for any that is free, or null"
    if log_format not in LOG_FORMATS:
        yield f"log_format: {log_format!r} is not one of {', '.join(LOG_FORMATS)}"
