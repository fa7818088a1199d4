"""Distributions of off-policy algorithms over bounded Box actions: a gaussian with a state's deviation, one action."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from agents.policies.distribution import Distribution
from agents.policies.gaussian import SquashedGaussian, stretched

LOG_STD = (-20.0, 2.0)  # the bounds of Haarnoja et al. 2018


class StateGaussian(SquashedGaussian):
    """A squashed gaussian whose deviation the network gives too: the policy of SAC (Haarnoja et al. 2018).

    The output holds the mean and log(deviation / `initial_std`): [..., 2 A].
    """

    def __init__(self, low: np.ndarray, high: np.ndarray, initial_std: float = 1.0) -> None:
        super().__init__(low, high, initial_std)
        del self.log_std
        self.size, self._initial = 2 * low.size, math.log(initial_std)

    @property
    def added_log_std(self) -> Tensor:
        return torch.full((self.size // 2,), self._initial)

    def moments(self, output: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = output.chunk(2, -1)
        return mean, (log_std + self._initial).clamp(*LOG_STD)


class Deterministic(Distribution):
    """One action alone, tanh of the output: the policy of DDPG and TD3. An explorer adds the noise.

    Actions are kept as float32 [..., A] in [-1, 1]; `env_action` stretches them to the bounds `low` and `high`. There
    is no density: log-probabilities and entropies are 0.
    """

    has_chance = False

    def __init__(self, low: np.ndarray, high: np.ndarray) -> None:
        super().__init__()
        self.size = low.size
        self._low, self._high = low, high

    def sample(self, output: Tensor, generator: torch.Generator) -> Tensor:
        return self.mode(output)

    def mode(self, output: Tensor) -> Tensor:
        return output.tanh()

    def uniform(self, output: Tensor, generator: torch.Generator) -> Tensor:
        return torch.empty(output.shape).uniform_(-1, 1, generator=generator).to(output.device)

    def noisy(self, action: Tensor, noise: Tensor) -> Tensor:
        return (action + noise).clamp(-1, 1)

    def bounded(self, action: Tensor) -> Tensor:
        return action

    def log_prob(self, output: Tensor, action: Any) -> Tensor:
        return output.new_zeros(output.shape[:-1])

    def log_prob_entropy(self, output: Tensor, action: Any) -> tuple[Tensor, Tensor]:
        return self.log_prob(output, action), self.log_prob(output, action)

    def kl(self, p: Tensor, q: Tensor) -> Tensor:
        return p.new_zeros(p.shape[:-1])

    def env_action(self, action: np.ndarray) -> np.ndarray:
        return stretched(action, self._low, self._high)
