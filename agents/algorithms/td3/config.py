"""Settings of TD3."""

from __future__ import annotations

from dataclasses import dataclass

from agents.algorithms.critics import CriticsConfig
from agents.algorithms.settings import Allowed, Scheduled


@dataclass(frozen=True)
class TD3Config(CriticsConfig):
    """Settings of `td3`, in addition to those of CriticsConfig."""

    learning_rate: Scheduled = 1e-3
    critics: int = 2  # value networks; the smallest of their targets counts
    policy_every: int = 2  # updates of the critics per update of the policy and of all targets
    target_noise: float = 0.2  # deviation of the noise on the target policy's action, in units of half the range
    target_noise_clip: float = 0.5  # largest size of this noise
    noise: float = 0.1  # deviation of the noise on actors' actions, in units of half the range
    noise_theta: float | None = None  # fraction of it that is forgotten per step (Ornstein-Uhlenbeck); null: all

    name = "td3"

    def allowed(self) -> Allowed:
        return super().allowed() | {
            "critics": ("at least 1", self.critics >= 1),
            "policy_every": ("at least 1", self.policy_every >= 1),
            "target_noise": ("at least 0", self.target_noise >= 0),
            "target_noise_clip": ("at least 0", self.target_noise_clip >= 0),
            "noise": ("at least 0", self.noise >= 0),
            "noise_theta": ("within 0 and 1, or null", self.noise_theta is None or 0 <= self.noise_theta <= 1),
        }
