"""Settings of APPO."""

from __future__ import annotations

from dataclasses import dataclass

from agents.algorithms.burn_in import BurnInConfig
from agents.algorithms.gradient import GradientConfig


@dataclass(frozen=True)
class APPOConfig(GradientConfig, BurnInConfig):
    """Settings of `appo`, beside those of GradientConfig and BurnInConfig."""

    epochs: int = 4
    minibatch_size: int = 512  # steps
    clip_range: float = 0.2
    normalize_advantage: bool = True
    rho_bar: float = 1.0  # importance weights are cut to it: which policy's value is found
    c_bar: float = 1.0  # the same of the traces: how fast it is found
    lambda_: float = 0.95  # V-trace's traces are multiplied by it
    target_clip: float = 2.0  # bound of the ratio between the policy at the update's beginning and the one that acted

    name = "appo"

    def allowed(self) -> dict[str, tuple[str, bool]]:
        """Setting -> (what it must be, whether it is)."""
        return (
            super().allowed()
            | self.allowed_of_burn_in()
            | {
                "epochs": ("at least 1", self.epochs >= 1),
                "minibatch_size": ("at least 2, or advantages have no spread", self.minibatch_size >= 2),
                "clip_range": ("above 0", self.clip_range > 0),
                "rho_bar": ("above 0, and at least c_bar", self.rho_bar > 0 and self.rho_bar >= self.c_bar),
                "c_bar": ("above 0", self.c_bar > 0),
                "lambda_": ("within 0 and 1", 0 <= self.lambda_ <= 1),
                "target_clip": ("at least 1", self.target_clip >= 1),
            }
        )
