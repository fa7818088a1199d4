"""Settings of `python -m workers.export`; --help shows their comments."""

from __future__ import annotations

from dataclasses import dataclass

from warren.errors import ConfigurationError
from workers.models.verifying import AGREEMENT


@dataclass
class ExportConfig:
    """Settings of an export: a policy, and how its model is made and checked."""

    run: str  # a run folder, or a folder of runs, of which the newest is taken
    player: str = "main"  # player of a league's run; or a frozen one: main@1200
    version: int | None = None  # version of the weights, among the run's checkpoints; null: the newest
    int8: bool = False  # weights of a byte each
    agreement: float = AGREEMENT  # share of recorded observations on which the model has to act as PyTorch does
    recorded: str | None = None  # the file of those observations; null: what the run's learner wrote, or a game played

    def __post_init__(self) -> None:
        if not 0 <= self.agreement <= 1:
            raise ConfigurationError(f"agreement={self.agreement} must be between 0 and 1")
