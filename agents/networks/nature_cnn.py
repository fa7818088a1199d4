"""`nature_cnn`: the convolutional network of Mnih et al. 2015, initialised as in CleanRL and Stable-Baselines3."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
import torch
from torch import nn

from agents.configuration import parse
from agents.networks.actor_critic import ActorCritic, Trunk
from agents.networks.core import build_core
from agents.networks.images import ImageEncoder, convolution
from agents.networks.network import Heads, Network
from agents.networks.registry import NETWORKS
from agents.spaces import SpaceTree
from warren.errors import ConfigurationError

OWNER = "network 'nature_cnn'"
SMALLEST = 36  # the side that the three strides of 4, 2 and 1 reduce to one pixel


@dataclass(frozen=True)
class NatureCNNConfig:
    """Settings of `nature_cnn`."""

    hidden_size: int = 512  # units of the layer after the convolutions
    vector_hidden_size: int = 64  # units of the layer for all leaves of the observation that are not images
    shared: bool = True  # one trunk for policy and value, as on Atari
    core: Mapping[str, Any] | None = None  # {name: lstm, size: 128}: a memory
    policy_gain: float = 0.01

    def __post_init__(self) -> None:
        problems = [
            f"{name}={getattr(self, name)} of {OWNER} must be at least {least}"
            for name, least in (("hidden_size", 1), ("vector_hidden_size", 1), ("policy_gain", 0))
            if getattr(self, name) < least
        ]
        if problems:
            raise ConfigurationError(problems)


def convolutions(channels: int, generator: torch.Generator) -> nn.Module:
    """Return the three convolutions, [N, channels, H, W] -> [N, 64, H', W']."""
    return nn.Sequential(
        convolution(channels, 32, 8, 4, generator), nn.ReLU(),
        convolution(32, 64, 4, 2, generator), nn.ReLU(),
        convolution(64, 64, 3, 1, generator), nn.ReLU(),
    )  # fmt: skip


@NETWORKS.register("nature_cnn")
def build(
    config: Mapping[str, Any], observation_space: gymnasium.Space[Any], heads: Heads, generator: torch.Generator
) -> Network:
    settings, tree = parse(NatureCNNConfig, OWNER, config), SpaceTree(observation_space, "observation")

    def trunk() -> Trunk:
        hidden, vector = settings.hidden_size, settings.vector_hidden_size
        encoder = ImageEncoder(tree, convolutions, SMALLEST, hidden, vector, generator, OWNER)
        return Trunk(encoder, build_core(settings.core, encoder.size, generator))

    return ActorCritic(trunk, settings.shared, heads, settings.policy_gain, generator)
