"""Settings of R2D2."""

from __future__ import annotations

from dataclasses import dataclass

from agents.algorithms.dqn.config import DQNConfig
from agents.algorithms.settings import Allowed, Scheduled


@dataclass(frozen=True)
class R2D2Config(DQNConfig):
    """Settings of `r2d2`: those of DQN, and of sequences."""

    learning_rate: Scheduled = 5e-4
    gamma: float = 0.997  # the discount of a step
    n_steps: int = 5  # steps whose rewards a target has before its bootstrap
    prioritized: bool = True  # draw sequences by their last errors, and correct for that by weights
    burn_in: int = 20  # steps of a sequence that only bring its memory up to date
    learned: int = 40  # steps of a sequence after them that are learned from
    rescaled: bool = True  # values are learned as h(x) = sign(x) (sqrt(|x| + 1) - 1) + x / 1000
    largest_share: float = 0.9  # weight of a sequence's largest error in its priority; the mean error has the rest

    name = "r2d2"

    def allowed(self) -> Allowed:
        return super().allowed() | {
            "burn_in": ("at least 0", self.burn_in >= 0),
            "learned": ("at least 1", self.learned >= 1),
            "largest_share": ("within 0 and 1", 0 <= self.largest_share <= 1),
        }
