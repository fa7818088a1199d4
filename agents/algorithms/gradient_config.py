"""Settings that algorithms which follow a gradient share, and their schedules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agents.algorithms.magnet import MagnetConfig
from agents.algorithms.settings import Allowed, Scheduled
from agents.algorithms.teacher import TeacherConfig
from agents.operators.schedules import InverseSquareRoot, Linear


@dataclass(frozen=True)
class GradientConfig(TeacherConfig, MagnetConfig):
    """Settings that all of these algorithms have: of the optimizer, of the loss, of a teacher and of a magnet."""

    learning_rate: Scheduled = 1.5e-3  # of Adam
    anneal_steps: int | None = None  # environment steps over which the rate falls linearly; null keeps it constant
    anneal_to: float = 0.0  # the fraction of learning_rate that it falls to
    adam_beta1: float = 0.9  # decay of its mean of gradients
    adam_beta2: float = 0.999  # decay of its mean of their squares
    adam_epsilon: float = 1e-5  # that of the reference implementations of PPO, not torch's
    max_grad_norm: float = 0.5  # longer gradients are cut to it
    gamma: float = 0.99  # the discount of a step
    entropy_coefficient: Scheduled = 0.0  # of the entropy bonus in the loss
    entropy_decay_steps: int | None = None  # the coefficient falls by 1/sqrt(1 + steps/this); null keeps it constant
    value_coefficient: float = 0.5  # of the value loss
    scale_rewards: bool = False  # divided by the deviation of their discounted sums, and clipped

    def scheduled(self) -> tuple[str, ...]:
        return (*super().scheduled(), "learning_rate", "entropy_coefficient")

    def allowed(self) -> Allowed:
        return super().allowed() | {
            "learning_rate": ("above 0 and at most 1", self.all_of("learning_rate", self._is_rate)),
            "anneal_steps": ("at least 1 or null", self.anneal_steps is None or self.anneal_steps >= 1),
            "anneal_to": ("within 0 and 1", 0 <= self.anneal_to <= 1),
            "adam_beta1": ("at least 0 and below 1", 0 <= self.adam_beta1 < 1),
            "adam_beta2": ("at least 0 and below 1", 0 <= self.adam_beta2 < 1),
            "adam_epsilon": ("above 0", self.adam_epsilon > 0),
            "max_grad_norm": ("above 0", self.max_grad_norm > 0),
            "gamma": ("within 0 and 1", 0 <= self.gamma <= 1),
            "entropy_coefficient": ("at least 0", self.all_of("entropy_coefficient", lambda x: x >= 0)),
            "entropy_decay_steps": (
                "at least 1 or null",
                self.entropy_decay_steps is None or self.entropy_decay_steps >= 1,
            ),
            "value_coefficient": ("at least 0", self.value_coefficient >= 0),
        }

    def _is_rate(self, rate: float) -> bool:
        return 0 < rate <= 1 or (rate == 0 and isinstance(self.learning_rate, Mapping))  # a schedule may end at 0

    def learning_rate_at(self, steps: int, progress: float = 0.0) -> float:
        """Return the learning rate after `steps` environment steps, at `progress` in [0, 1] of the run."""
        rate = self.schedules["learning_rate"].at(steps, progress)
        return rate if self.anneal_steps is None else rate * Linear(1.0, self.anneal_to, self.anneal_steps)(steps)

    def entropy_at(self, steps: int, progress: float = 0.0) -> float:
        """Return the entropy coefficient after `steps` environment steps, at `progress` in [0, 1] of the run."""
        coefficient = self.schedules["entropy_coefficient"].at(steps, progress)
        decay = self.entropy_decay_steps
        return coefficient if decay is None else InverseSquareRoot(coefficient, decay)(steps)
