"""`nature_cnn`: the convolutional network of Mnih et al. 2015, initialised as in CleanRL and Stable-Baselines3."""

from __future__ import annotations

import itertools
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


@dataclass(frozen=True)
class NatureCNNConfig:
    """Settings of `nature_cnn`."""

    filters: tuple[int, ...] = (32, 64, 64)  # of each convolution
    kernels: tuple[int, ...] = (8, 4, 3)  # sides of their kernels
    strides: tuple[int, ...] = (4, 2, 1)  # of their kernels
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
        layers = {"filters": self.filters, "kernels": self.kernels, "strides": self.strides}
        if len({len(numbers) for numbers in layers.values()}) > 1 or any(
            not numbers or min(numbers) < 1 for numbers in layers.values()
        ):
            given = ", ".join(f"{name}={list(numbers)}" for name, numbers in layers.items())
            problems.append(f"{given} of {OWNER} must have one number of at least 1 for each convolution")
        if problems:
            raise ConfigurationError(problems)

    @property
    def smallest(self) -> int:
        """Return the side that the kernels and strides reduce to one pixel."""
        side = 1
        for kernel, stride in zip(reversed(self.kernels), reversed(self.strides), strict=True):
            side = (side - 1) * stride + kernel
        return side


@NETWORKS.register("nature_cnn")
def build(
    config: Mapping[str, Any], observation_space: gymnasium.Space[Any], heads: Heads, generator: torch.Generator
) -> Network:
    settings, tree = parse(NatureCNNConfig, OWNER, config), SpaceTree(observation_space, "observation")

    def convolutions(channels: int, generator: torch.Generator) -> nn.Module:
        inputs = [channels, *settings.filters[:-1]]
        layers = zip(inputs, settings.filters, settings.kernels, settings.strides, strict=True)
        made = [(convolution(*layer, generator), nn.ReLU()) for layer in layers]
        return nn.Sequential(*itertools.chain.from_iterable(made))

    def trunk() -> Trunk:
        hidden, vector = settings.hidden_size, settings.vector_hidden_size
        encoder = ImageEncoder(tree, convolutions, settings.smallest, hidden, vector, generator, OWNER)
        return Trunk(encoder, build_core(settings.core, encoder.size, generator))

    return ActorCritic(trunk, settings.shared, heads, settings.policy_gain, generator)
