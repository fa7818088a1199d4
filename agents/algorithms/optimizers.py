"""Optimizers by name, and their settings: each steps all parameters of a module, which are one tensor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from agents.algorithms.adam import Adam
from agents.algorithms.rmsprop import RMSprop
from agents.algorithms.settings import AlgorithmConfig, Allowed, Scheduled
from agents.operators.schedules import Linear

NAMES = ("adam", "adamw", "rmsprop")


@dataclass(frozen=True)
class OptimizerConfig(AlgorithmConfig):
    """Settings of the optimizer."""

    learning_rate: Scheduled = 1.5e-3  # of the optimizer
    anneal_steps: int | None = None  # environment steps over which the rate falls linearly; null keeps it constant
    anneal_to: float = 0.0  # the fraction of learning_rate that it falls to
    optimizer: str = "adam"  # adam, adamw or rmsprop
    adam_beta1: float = 0.9  # decay of its mean of gradients
    adam_beta2: float = 0.999  # decay of its mean of their squares
    adam_epsilon: float = 1e-5  # value of the reference implementations of PPO, not torch's
    rmsprop_decay: float = 0.99  # decay of its mean of squared gradients
    rmsprop_epsilon: float = 0.01  # added to its root, as torch does
    weight_decay: float = 0.0  # adamw: weights shrink by it times the rate; others add it times weight to gradient
    learning_rates: Mapping[str, float] = field(default_factory=dict)  # beginning of parameters' names -> rate's factor

    def scheduled(self) -> tuple[str, ...]:
        return (*super().scheduled(), "learning_rate")

    def allowed(self) -> Allowed:
        return super().allowed() | {
            "learning_rate": ("above 0 and at most 1", self.all_of("learning_rate", self._is_rate)),
            "anneal_steps": ("at least 1 or null", self.anneal_steps is None or self.anneal_steps >= 1),
            "anneal_to": ("within 0 and 1", 0 <= self.anneal_to <= 1),
            "optimizer": (f"one of {', '.join(NAMES)}", self.optimizer in NAMES),
            "adam_beta1": ("at least 0 and below 1", 0 <= self.adam_beta1 < 1),
            "adam_beta2": ("at least 0 and below 1", 0 <= self.adam_beta2 < 1),
            "adam_epsilon": ("above 0", self.adam_epsilon > 0),
            "rmsprop_decay": ("at least 0 and below 1", 0 <= self.rmsprop_decay < 1),
            "rmsprop_epsilon": ("above 0", self.rmsprop_epsilon > 0),
            "weight_decay": ("at least 0", self.weight_decay >= 0),
            "learning_rates": (
                "a table of factors that are at least 0",
                all(isinstance(factor, int | float) and factor >= 0 for factor in self.learning_rates.values()),
            ),
        }

    def _is_rate(self, rate: float) -> bool:
        return 0 < rate <= 1 or (rate == 0 and isinstance(self.learning_rate, Mapping))  # a schedule may end at 0

    def learning_rate_at(self, steps: int, progress: float = 0.0) -> float:
        """Return the learning rate after `steps` environment steps, at `progress` in [0, 1] of the run."""
        rate = self.schedules["learning_rate"].at(steps, progress)
        return rate if self.anneal_steps is None else rate * Linear(1.0, self.anneal_to, self.anneal_steps)(steps)


Optimizer = Adam | RMSprop


def optimizer_of(config: OptimizerConfig, values: Tensor) -> Optimizer:
    """Return the optimizer of `values`, float [P], that the settings name."""
    kind: type[Optimizer] = RMSprop if config.optimizer == "rmsprop" else Adam
    optimizer = kind(values, config.learning_rate_at(0))
    configure(optimizer, config)
    return optimizer


def configure(optimizer: Optimizer, config: OptimizerConfig) -> None:
    """Give `optimizer` its settings, which may have changed, except for the learning rate."""
    optimizer.weight_decay = config.weight_decay
    if isinstance(optimizer, Adam):
        optimizer.beta1, optimizer.beta2 = config.adam_beta1, config.adam_beta2
        optimizer.epsilon, optimizer.decoupled = config.adam_epsilon, config.optimizer == "adamw"
    else:
        optimizer.decay, optimizer.epsilon = config.rmsprop_decay, config.rmsprop_epsilon
