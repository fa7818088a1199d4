"""Settings of IMPALA."""

from __future__ import annotations

from dataclasses import dataclass

from agents.algorithms.burn_in import BurnInConfig
from agents.algorithms.gradient import GradientConfig
from agents.algorithms.settings import Allowed, Scheduled, VTraceConfig


@dataclass(frozen=True)
class IMPALAConfig(GradientConfig, BurnInConfig, VTraceConfig):
    """Settings of `impala`, beside those of the classes that it derives from."""

    learning_rate: Scheduled = 6e-4
    max_grad_norm: float = 40.0
    entropy_coefficient: Scheduled = 0.01
    upgo_coefficient: float = 0.0  # of AlphaStar's UPGO term
    normalize_advantage: bool = False

    name = "impala"

    def allowed(self) -> Allowed:
        return super().allowed() | {"upgo_coefficient": ("at least 0", self.upgo_coefficient >= 0)}
