"""Settings of SAC."""

from __future__ import annotations

from dataclasses import dataclass

from agents.algorithms.critics import CriticsConfig
from agents.algorithms.settings import Allowed


@dataclass(frozen=True)
class SACConfig(CriticsConfig):
    """Settings of `sac`, in addition to those of CriticsConfig."""

    temperature: float = 1.0  # weight of the entropy in the objective; where it is tuned, its first value
    tuned: bool = True  # tune it by gradient, so that the policy's entropy becomes target_entropy
    target_entropy: float | None = None  # null: -1 per action dimension; for Discrete actions by entropy_share
    entropy_share: float = 0.89  # Discrete actions: the policy is to have this share of the largest entropy
    temperature_rate: float = 1.0  # the temperature's learning rate as a multiple of the policy's

    name = "sac"

    def allowed(self) -> Allowed:
        return super().allowed() | {
            "temperature": ("above 0, or 0 where it is not tuned", self.temperature > 0 or not self.tuned),
            "entropy_share": ("within 0 and 1", 0 <= self.entropy_share <= 1),
            "temperature_rate": ("above 0", self.temperature_rate > 0),
        }
