"""Settings of IMPALA."""

from __future__ import annotations

from dataclasses import dataclass

from agents.algorithms.burn_in import BurnInConfig
from agents.algorithms.gradient import GradientConfig
from agents.algorithms.settings import Allowed, Scheduled, VTraceConfig


@dataclass(frozen=True)
class IMPALAConfig(GradientConfig, BurnInConfig, VTraceConfig):
    """Settings of `impala`, in addition to those of the classes that it derives from."""

    learning_rate: Scheduled = 6e-4
    max_grad_norm: float = 40.0
    entropy_coefficient: Scheduled = 0.01
    upgo_coefficient: float = 0.0  # weight of AlphaStar's UPGO term
    normalize_advantage: bool = False
    replay_length: int | None = None  # steps of unrolls drawn from a replay; null: each unroll is learned from once

    name = "impala"

    def allowed(self) -> Allowed:
        return super().allowed() | {
            "upgo_coefficient": ("at least 0", self.upgo_coefficient >= 0),
            "replay_length": ("at least 1 or null", self.replay_length is None or self.replay_length >= 1),
        }
