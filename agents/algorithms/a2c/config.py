"""Settings of A2C."""

from __future__ import annotations

from dataclasses import dataclass

from agents.algorithms.gradient import GradientConfig
from agents.algorithms.settings import Allowed, Scheduled


@dataclass(frozen=True)
class A2CConfig(GradientConfig):
    """Settings of `a2c`, in addition to those of GradientConfig."""

    learning_rate: Scheduled = 7e-4
    gae_lambda: float = 1.0  # 1 is the paper's: returns as long as the unroll
    normalize_advantage: bool = False

    name = "a2c"

    def allowed(self) -> Allowed:
        return super().allowed() | {"gae_lambda": ("within 0 and 1", 0 <= self.gae_lambda <= 1)}
