"""`mlp`: an actor-critic of two separate perceptrons, the network of Stable-Baselines3's and CleanRL's PPO."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import gymnasium
import torch
from torch import Tensor

from agents.configuration import parse
from agents.networks.registry import NETWORKS, Network
from agents.operators.blocks import ACTIVATIONS, MLP
from warren.errors import ConfigurationError, unknown_name


@dataclass(frozen=True)
class MLPConfig:
    """Settings of `mlp`: the same hidden layers for the policy's trunk and the value's."""

    hidden_sizes: tuple[int, ...] = (64, 64)
    activation: str = "tanh"
    policy_gain: float = 0.01  # of the policy's last layer at the start; large ones begin far from uniform

    def __post_init__(self) -> None:
        problems = []
        if any(size < 1 for size in self.hidden_sizes):
            problems.append(f"hidden_sizes={list(self.hidden_sizes)} of network 'mlp' must all be at least 1")
        if self.policy_gain < 0:
            problems.append(f"policy_gain={self.policy_gain} of network 'mlp' must be at least 0")
        if self.activation not in ACTIVATIONS:
            problems.append(unknown_name("activation", self.activation, ACTIVATIONS))
        if problems:
            raise ConfigurationError(problems)


class MLPActorCritic(Network):
    """Two MLPs over the flattened observation. The policy's last layer starts near zero: near-uniform first actions."""

    def __init__(self, inputs: int, outputs: int, config: MLPConfig, generator: torch.Generator) -> None:
        super().__init__()
        sizes = [inputs, *config.hidden_sizes]
        self.policy_trunk = MLP([*sizes, outputs], config.activation, config.policy_gain, generator)
        self.value_trunk = MLP([*sizes, 1], config.activation, 1.0, generator)

    def forward(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        flat = observation.flatten(1)
        return self.policy_trunk(flat), self.value_trunk(flat).squeeze(-1)

    def value(self, observation: Tensor) -> Tensor:
        value: Tensor = self.value_trunk(observation.flatten(1))
        return value.squeeze(-1)

    def output(self, observation: Tensor) -> Tensor:
        output: Tensor = self.policy_trunk(observation.flatten(1))
        return output


@NETWORKS.register("mlp")
def build(
    config: Mapping[str, Any], observation_space: gymnasium.Space[Any], outputs: int, generator: torch.Generator
) -> Network:
    if not isinstance(observation_space, gymnasium.spaces.Box):
        raise ConfigurationError(
            f"network 'mlp' takes observations of a Box space, not {observation_space}; "
            "gymnasium.wrappers.FlattenObservation makes one, in a function of yours: env.id=path/to/file.py:make"
        )
    return MLPActorCritic(prod(observation_space.shape), outputs, parse(MLPConfig, "network 'mlp'", config), generator)
