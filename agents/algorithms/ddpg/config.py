"""Settings of DDPG."""

from __future__ import annotations

from dataclasses import dataclass

from agents.algorithms.td3.config import TD3Config


@dataclass(frozen=True)
class DDPGConfig(TD3Config):
    """Settings of `ddpg`: those of TD3, with other defaults."""

    critics: int = 1  # value networks; the smallest of their targets counts
    policy_every: int = 1  # updates of the critics per update of the policy and of all targets
    target_noise: float = 0.0  # deviation of the noise on the target policy's action, in units of half the range

    name = "ddpg"
