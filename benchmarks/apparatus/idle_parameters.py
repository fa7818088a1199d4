"""A perceptron with a chosen number of idle parameters beside it, so that weights of a given size are sent.

network=own network.name=benchmarks/apparatus/idle_parameters.py:build +network.mb=10
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import torch
from torch import nn

from agents.networks import Network, mlp

MB = 1e6  # bytes
AT_ONCE = 1e6  # bytes of one tensor, like a large layer's


class IdleParameters(Network):
    """`computing`, and `numbers` parameters that compute nothing."""

    def __init__(self, computing: Network, numbers: int) -> None:
        super().__init__()
        self.computing = computing
        size = int(AT_ONCE / 4)
        parts = [torch.zeros(min(size, numbers - first)) for first in range(0, numbers, size)]
        self.idle = nn.ParameterList(nn.Parameter(part) for part in parts)

    def step(self, observation: Any, memory: Any) -> Any:
        """Do the same as `computing`."""
        return self.computing.step(observation, memory)


def build(config: Mapping[str, Any], observation_space: gymnasium.Space[Any], heads: Any, generator: Any) -> Network:
    computing = mlp.build({}, observation_space, heads, generator)
    return IdleParameters(computing, int(float(config["mb"]) * MB / 4))
