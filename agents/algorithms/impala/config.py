"""Settings of IMPALA."""

from __future__ import annotations

from dataclasses import dataclass

from agents.algorithms.burn_in import BurnInConfig
from agents.algorithms.gradient import GradientConfig


@dataclass(frozen=True)
class IMPALAConfig(GradientConfig, BurnInConfig):
    """Settings of `impala`, beside those of GradientConfig and BurnInConfig."""

    learning_rate: float = 6e-4
    max_grad_norm: float = 40.0
    entropy_coefficient: float = 0.01
    rho_bar: float = 1.0  # importance weights are cut to it: which policy's value is found
    c_bar: float = 1.0  # the same of the traces: how fast it is found
    lambda_: float = 1.0  # V-trace's traces are multiplied by it
    upgo_coefficient: float = 0.0  # of AlphaStar's UPGO term

    name = "impala"

    def allowed(self) -> dict[str, tuple[str, bool]]:
        """Setting -> (what it must be, whether it is)."""
        return (
            super().allowed()
            | self.allowed_of_burn_in()
            | {
                "rho_bar": ("above 0, and at least c_bar", self.rho_bar > 0 and self.rho_bar >= self.c_bar),
                "c_bar": ("above 0", self.c_bar > 0),
                "lambda_": ("within 0 and 1", 0 <= self.lambda_ <= 1),
                "upgo_coefficient": ("at least 0", self.upgo_coefficient >= 0),
            }
        )
