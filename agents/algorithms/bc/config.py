"""Settings of behaviour cloning."""

from __future__ import annotations

from dataclasses import dataclass

from agents.algorithms.gradient import GradientConfig
from agents.algorithms.settings import Allowed, Scheduled


@dataclass(frozen=True)
class BCConfig(GradientConfig):
    """Settings of `bc`, in addition to those of GradientConfig."""

    learning_rate: Scheduled = 1e-3
    likelihood_coefficient: float = 1.0  # weight of -log pi(a|s) of the data's actions; 0: learn from the teacher alone
    value_coefficient: float = 0.0  # weight of the value loss, to the returns of recorded games
    epochs: int = 1  # passes over each batch
    minibatch_size: int = 256  # steps at most; a batch is cut into equal parts

    name = "bc"

    def allowed(self) -> Allowed:
        return super().allowed() | {
            "likelihood_coefficient": ("at least 0", self.likelihood_coefficient >= 0),
            "epochs": ("at least 1", self.epochs >= 1),
            "minibatch_size": ("at least 1", self.minibatch_size >= 1),
            "rnd_coefficient": ("0: nothing is learned from rewards", self.rnd_coefficient == 0),
            "scale_rewards": ("false: returns of recorded games are not scaled", not self.scale_rewards),
        }
