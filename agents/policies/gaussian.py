"""Diagonal gaussian policy over a Box action space; the network's output is the mean."""

from __future__ import annotations

import math
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn

from agents.networks import Network
from agents.policies.policy import Policy

_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


class GaussianPolicy(Policy):
    """pi(a|s) = N(mean(s), exp(log_std)^2) with one learned log_std an action dimension, from 0 (std 1) on.

    Actions are kept as drawn, so that log-probabilities are exact; `env_action` clips them to the space's bounds.
    """

    def __init__(
        self, network: Network, observation_space: gymnasium.Space[Any], action_space: gymnasium.spaces.Box, seed: int
    ) -> None:
        super().__init__(network, observation_space, action_space, seed)
        self.log_std = nn.Parameter(torch.zeros(action_space.low.size))
        self._low, self._high, self._shape = action_space.low, action_space.high, action_space.shape

    def env_action(self, action: np.ndarray) -> np.ndarray:
        clipped: np.ndarray = action.reshape(len(action), *self._shape).clip(self._low, self._high)
        return clipped

    def _sample(self, output: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        noise = torch.empty(output.shape).normal_(generator=generator).to(output.device)
        log_prob = (-0.5 * noise.square() - self.log_std - _HALF_LOG_TWO_PI).sum(-1)
        return output + self.log_std.exp() * noise, log_prob

    def _mode(self, output: Tensor) -> tuple[Tensor, Tensor]:
        return output, (-self.log_std - _HALF_LOG_TWO_PI).sum().expand(len(output))

    def _log_prob_entropy(self, output: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        noise = (action - output) * torch.exp(-self.log_std)
        log_prob = (-0.5 * noise.square() - self.log_std - _HALF_LOG_TWO_PI).sum(-1)
        entropy = (self.log_std + 0.5 + _HALF_LOG_TWO_PI).sum().expand(len(output))
        return log_prob, entropy
