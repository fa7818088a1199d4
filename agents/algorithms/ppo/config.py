"""Settings of PPO."""

from __future__ import annotations

from dataclasses import dataclass

from agents.algorithms.burn_in import BurnInConfig
from agents.algorithms.gradient import GradientConfig
from agents.algorithms.settings import Allowed, EpochsConfig


@dataclass(frozen=True)
class PPOConfig(GradientConfig, BurnInConfig, EpochsConfig):
    """Settings of `ppo`, in addition to those of the classes that it derives from."""

    gae_lambda: float = 0.95  # lambda of generalized advantage estimation
    clip_range_value: float | None = None  # in units of the reward, hence off
    target_kl: float | None = None  # an update ends when a minibatch's KL exceeds 1.5 times this

    name = "ppo"

    def allowed(self) -> Allowed:
        return super().allowed() | {
            "gae_lambda": ("within 0 and 1", 0 <= self.gae_lambda <= 1),
            "clip_range_value": ("above 0 or null", self.clip_range_value is None or self.clip_range_value > 0),
            "target_kl": ("above 0 or null", self.target_kl is None or self.target_kl > 0),
        }
