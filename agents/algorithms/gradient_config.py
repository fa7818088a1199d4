"""Settings that algorithms which follow a gradient share, and their schedules."""

from __future__ import annotations

from dataclasses import dataclass

from agents.algorithms.magnet import MagnetConfig
from agents.algorithms.optimizers import OptimizerConfig
from agents.algorithms.rnd import RNDConfig
from agents.algorithms.settings import Allowed, Scheduled
from agents.algorithms.teacher import TeacherConfig
from agents.operators.schedules import InverseSquareRoot


@dataclass(frozen=True)
class GradientConfig(TeacherConfig, MagnetConfig, RNDConfig, OptimizerConfig):
    """Settings that all of these algorithms have: of loss and optimizer, of a teacher, a magnet and a bonus."""

    max_grad_norm: float = 0.5  # longer gradients are scaled down to this norm
    gamma: float = 0.99  # the discount of a step
    entropy_coefficient: Scheduled = 0.0  # weight of the entropy bonus in the loss
    entropy_decay_steps: int | None = None  # the coefficient falls by 1/sqrt(1 + steps/this); null keeps it constant
    value_coefficient: float = 0.5  # weight of the value loss
    scale_rewards: bool = False  # divide rewards by the deviation of their discounted sums, and clip them

    def scheduled(self) -> tuple[str, ...]:
        return (*super().scheduled(), "entropy_coefficient")

    def allowed(self) -> Allowed:
        return super().allowed() | {
            "max_grad_norm": ("above 0", self.max_grad_norm > 0),
            "gamma": ("within 0 and 1", 0 <= self.gamma <= 1),
            "entropy_coefficient": ("at least 0", self.all_of("entropy_coefficient", lambda x: x >= 0)),
            "entropy_decay_steps": (
                "at least 1 or null",
                self.entropy_decay_steps is None or self.entropy_decay_steps >= 1,
            ),
            "value_coefficient": ("at least 0", self.value_coefficient >= 0),
        }

    def entropy_at(self, steps: int, progress: float = 0.0) -> float:
        """Return the entropy coefficient after `steps` environment steps, at `progress` in [0, 1] of the run."""
        coefficient = self.schedules["entropy_coefficient"].at(steps, progress)
        decay = self.entropy_decay_steps
        return coefficient if decay is None else InverseSquareRoot(coefficient, decay)(steps)
