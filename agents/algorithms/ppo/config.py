"""Settings of PPO."""

from __future__ import annotations

from dataclasses import dataclass

from warren.errors import ConfigurationError


@dataclass(frozen=True)
class PPOConfig:
    """Settings of `ppo`."""

    # Optimisation
    learning_rate: float = 1.5e-3
    anneal_steps: int | None = None  # environment steps over which the rate falls linearly; null keeps it constant
    anneal_to: float = 0.0  # the fraction of learning_rate that it falls to
    epochs: int = 10
    minibatch_size: int = 256  # the last minibatch of an epoch is smaller where the batch is no multiple of it
    max_grad_norm: float = 0.5

    # Returns
    gamma: float = 0.99
    gae_lambda: float = 0.95

    # Loss
    clip_range: float = 0.2
    clip_range_value: float | None = None  # in units of the reward, hence off
    entropy_coefficient: float = 0.0
    entropy_decay_steps: int | None = None  # the coefficient falls by 1/sqrt(1 + steps/this); null keeps it constant
    value_coefficient: float = 0.5
    normalize_advantage: bool = True
    target_kl: float | None = None  # an update ends when a minibatch's KL exceeds 1.5 times this

    def __post_init__(self) -> None:
        allowed = {
            "learning_rate": ("above 0", self.learning_rate > 0),
            "anneal_steps": ("at least 1 or null", self.anneal_steps is None or self.anneal_steps >= 1),
            "anneal_to": ("within 0 and 1", 0 <= self.anneal_to <= 1),
            "epochs": ("at least 1", self.epochs >= 1),
            "minibatch_size": ("at least 2, or advantages have no spread", self.minibatch_size >= 2),
            "max_grad_norm": ("above 0", self.max_grad_norm > 0),
            "gamma": ("within 0 and 1", 0 <= self.gamma <= 1),
            "gae_lambda": ("within 0 and 1", 0 <= self.gae_lambda <= 1),
            "clip_range": ("above 0", self.clip_range > 0),
            "clip_range_value": ("above 0 or null", self.clip_range_value is None or self.clip_range_value > 0),
            "entropy_coefficient": ("at least 0", self.entropy_coefficient >= 0),
            "entropy_decay_steps": (
                "at least 1 or null",
                self.entropy_decay_steps is None or self.entropy_decay_steps >= 1,
            ),
            "value_coefficient": ("at least 0", self.value_coefficient >= 0),
            "target_kl": ("above 0 or null", self.target_kl is None or self.target_kl > 0),
        }
        problems = [
            f"{k}={getattr(self, k)} of ppo must be {text}" for k, (text, holds) in allowed.items() if not holds
        ]
        if problems:
            raise ConfigurationError(problems)
