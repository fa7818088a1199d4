"""Settings of DQN."""

from __future__ import annotations

from dataclasses import dataclass

from agents.algorithms.off_policy import OffPolicyConfig
from agents.algorithms.settings import Allowed, Scheduled


@dataclass(frozen=True)
class DQNConfig(OffPolicyConfig):
    """Settings of `dqn`, in addition to those of OffPolicyConfig."""

    learning_rate: Scheduled = 1e-3
    max_grad_norm: float | None = 10.0
    double: bool = True  # the learning network chooses the next action, the target network values it
    dueling: bool = False  # Q = V + A - mean A, of the network's two heads
    quantiles: int = 1  # quantiles that are learned of each action's return (QR-DQN); 1: its mean alone
    huber: float = 1.0  # the loss is linear in errors beyond this
    target_every: int = 500  # updates after which the target becomes a copy, where target_rate is 1
    target_rate: float = 1.0  # fraction of the way to the weights that the target moves; below 1: after each update
    epsilon: Scheduled = 0.05  # probability of a random action, after explore_steps
    explore_steps: int = 10_000  # environment steps over which epsilon falls from 1 to its value
    epsilon_alpha: float = 0.0  # spreads epsilon over actors, 7 in Ape-X; 0: the same for all

    name = "dqn"

    def scheduled(self) -> tuple[str, ...]:
        return (*super().scheduled(), "epsilon")

    def allowed(self) -> Allowed:
        return super().allowed() | {
            "quantiles": ("at least 1", self.quantiles >= 1),
            "huber": ("above 0", self.huber > 0),
            "target_every": ("at least 1", self.target_every >= 1),
            "target_rate": ("above 0 and at most 1", 0 < self.target_rate <= 1),
            "epsilon": ("within 0 and 1", self.all_of("epsilon", lambda epsilon: 0 <= epsilon <= 1)),
            "explore_steps": ("at least 0", self.explore_steps >= 0),
            "epsilon_alpha": ("at least 0", self.epsilon_alpha >= 0),
        }

    def epsilon_at(self, steps: int, progress: float = 0.0) -> float:
        """Return epsilon after `steps` environment steps, at `progress` in [0, 1] of the run."""
        last = self.schedules["epsilon"].at(steps, progress)
        left = max(0.0, 1 - steps / self.explore_steps) if self.explore_steps else 0.0
        return last + (1 - last) * left
