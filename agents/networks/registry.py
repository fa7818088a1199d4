"""What a network is, and the table of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import torch
from torch import Tensor, nn

from warren.registry import Registry


class Network(nn.Module):
    """observation float32 [N, ...] -> (policy output float32 [N, outputs], value float32 [N])."""

    def forward(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        raise NotImplementedError

    def value(self, observation: Tensor) -> Tensor:
        """Only the value, float32 [N]; networks with a separate value trunk save the policy's."""
        _, value = self.forward(observation)
        return value

    def output(self, observation: Tensor) -> Tensor:
        """Only the policy output, float32 [N, outputs]; networks with a separate value trunk save that."""
        output, _ = self.forward(observation)
        return output


# (settings without the name, observation space, number of outputs, generator of the initial weights) -> network
Builder = Callable[[Mapping[str, Any], gymnasium.Space[Any], int, torch.Generator], Network]
NETWORKS: Registry[Builder] = Registry("network")


def build_network(
    config: Mapping[str, Any], observation_space: gymnasium.Space[Any], outputs: int, generator: torch.Generator
) -> Network:
    """The network that `config` describes; its `name` ("mlp" if absent) chooses it, the rest are its settings.

    Raises UnknownName for the name and ConfigurationError for the settings.
    """
    settings = dict(config)
    return NETWORKS[settings.pop("name", "mlp")](settings, observation_space, outputs, generator)
