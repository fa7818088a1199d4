"""Settings of PPO."""

from __future__ import annotations

from dataclasses import dataclass

from agents.algorithms.burn_in import BurnInConfig
from agents.algorithms.gradient import GradientConfig


@dataclass(frozen=True)
class PPOConfig(GradientConfig, BurnInConfig):
    """Settings of `ppo`, beside those of GradientConfig and BurnInConfig."""

    epochs: int = 10
    minibatch_size: int = 256  # the last minibatch of an epoch is smaller where the batch is no multiple of it
    gae_lambda: float = 0.95
    clip_range: float = 0.2
    clip_range_value: float | None = None  # in units of the reward, hence off
    normalize_advantage: bool = True
    target_kl: float | None = None  # an update ends when a minibatch's KL exceeds 1.5 times this

    name = "ppo"

    def allowed(self) -> dict[str, tuple[str, bool]]:
        """Setting -> (what it must be, whether it is)."""
        return (
            super().allowed()
            | self.allowed_of_burn_in()
            | {
                "epochs": ("at least 1", self.epochs >= 1),
                "minibatch_size": ("at least 2, or advantages have no spread", self.minibatch_size >= 2),
                "gae_lambda": ("within 0 and 1", 0 <= self.gae_lambda <= 1),
                "clip_range": ("above 0", self.clip_range > 0),
                "clip_range_value": ("above 0 or null", self.clip_range_value is None or self.clip_range_value > 0),
                "target_kl": ("above 0 or null", self.target_kl is None or self.target_kl > 0),
            }
        )
