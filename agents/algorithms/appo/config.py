"""Settings of APPO."""

from __future__ import annotations

from dataclasses import dataclass

from agents.algorithms.burn_in import BurnInConfig
from agents.algorithms.gradient import GradientConfig
from agents.algorithms.settings import Allowed, EpochsConfig, VTraceConfig


@dataclass(frozen=True)
class APPOConfig(GradientConfig, BurnInConfig, EpochsConfig, VTraceConfig):
    """Settings of `appo`, in addition to those of the classes that it derives from."""

    epochs: int = 4
    minibatch_size: int = 512
    lambda_: float = 0.95
    target_clip: float = 2.0  # bound of the ratio between the policy at the update's beginning and the one that acted

    name = "appo"

    def allowed(self) -> Allowed:
        return super().allowed() | {"target_clip": ("at least 1", self.target_clip >= 1)}
