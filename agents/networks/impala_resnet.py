"""`impala_resnet`: the deep network of IMPALA (Espeholt et al. 2018, figure 3), 15 convolutions in three stages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import gymnasium
import torch
from torch import nn

from agents.configuration import parse
from agents.networks.actor_critic import ActorCritic, Trunk
from agents.networks.core import build_core
from agents.networks.images import ImageEncoder, Residual, convolution
from agents.networks.network import Heads, Network
from agents.networks.registry import NETWORKS
from agents.spaces import SpaceTree
from warren.errors import ConfigurationError

OWNER = "network 'impala_resnet'"


@dataclass(frozen=True)
class ImpalaConfig:
    """Settings of `impala_resnet`."""

    channels: tuple[int, ...] = (16, 32, 32)  # per stage, which has five convolutions and halves height and width
    width: int = 1  # factor on all `channels` (2 and 4 in Cobbe et al. 2020)
    hidden_size: int = 256  # units of the layer after the convolutions
    vector_hidden_size: int = 64  # units of the layer for leaves that are not images
    shared: bool = True  # one trunk for policy and value
    core: Mapping[str, Any] | None = None  # {name: lstm, size: 256}: a memory, as in the paper
    policy_gain: float = 0.01

    def __post_init__(self) -> None:
        problems = [
            f"{name}={getattr(self, name)} of {OWNER} must be at least {least}"
            for name, least in (("width", 1), ("hidden_size", 1), ("vector_hidden_size", 1), ("policy_gain", 0))
            if getattr(self, name) < least
        ]
        if not self.channels or min(self.channels) < 1:
            problems.append(f"channels={list(self.channels)} of {OWNER} must be one number per stage, each at least 1")
        if problems:
            raise ConfigurationError(problems)


def stage(inputs: int, outputs: int, generator: torch.Generator) -> nn.Module:
    """Return a convolution, a 3 x 3 max-pooling of stride 2, and two residual blocks."""
    return nn.Sequential(
        convolution(inputs, outputs, 3, 1, generator, padding=1),
        nn.MaxPool2d(3, 2, 1),
        Residual(outputs, generator),
        Residual(outputs, generator),
    )


@NETWORKS.register("impala_resnet")
def build(
    config: Mapping[str, Any], observation_space: gymnasium.Space[Any], heads: Heads, generator: torch.Generator
) -> Network:
    settings, tree = parse(ImpalaConfig, OWNER, config), SpaceTree(observation_space, "observation")

    def convolutions(channels: int, generator: torch.Generator) -> nn.Module:
        widths = [channels, *(width * settings.width for width in settings.channels)]
        stages = [stage(*pair, generator) for pair in pairwise(widths)]
        return nn.Sequential(*stages, nn.ReLU())

    def trunk() -> Trunk:
        hidden, vector = settings.hidden_size, settings.vector_hidden_size
        encoder = ImageEncoder(tree, convolutions, 1, hidden, vector, generator, OWNER)
        return Trunk(encoder, build_core(settings.core, encoder.size, generator))

    return ActorCritic(trunk, settings.shared, heads, settings.policy_gain, generator)
