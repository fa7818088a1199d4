"""`board_resnet`: for boards, a small residual tower like AlphaZero's (Silver et al. 2017).

Nothing is pooled, so that every cell keeps its place. The heads see the tower's features of each cell and a hidden
layer over all cells. So a threat found in one place is known everywhere, and a winning cell is one linear layer away
from its move.
"""

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
from agents.networks.images import ImageEncoder, Residual, convolution
from agents.networks.network import Heads, Network
from agents.networks.registry import NETWORKS
from agents.spaces import SpaceTree
from warren.errors import ConfigurationError

OWNER = "network 'board_resnet'"


@dataclass(frozen=True)
class BoardConfig:
    """Settings of `board_resnet`."""

    channels: int = 32  # channels of every convolution
    blocks: int = 1  # blocks of two convolutions each: a feature sees 3 + 4 * blocks cells across
    cell_features: int = 4  # features of each cell, from a last convolution of 1 x 1
    hidden_size: int = 128  # units of the layer over all cells' features
    vector_hidden_size: int = 64  # units of the layer for all leaves of the observation that are not boards
    planes: str | None = None  # the dimension of a board's planes, "first" or "last"; null: as the shape suggests
    shared: bool = True  # one trunk for policy and value
    core: Mapping[str, Any] | None = None  # {name: lstm, size: 128}: a memory
    policy_gain: float = 0.01

    def __post_init__(self) -> None:
        ones = ("channels", "cell_features", "hidden_size", "vector_hidden_size")
        problems = [
            f"{name}={getattr(self, name)} of {OWNER} must be at least {least}"
            for name, least in (*((name, 1) for name in ones), ("blocks", 0), ("policy_gain", 0))
            if getattr(self, name) < least
        ]
        if self.planes not in (None, "first", "last"):
            problems.append(
                f"planes={self.planes!r} of {OWNER} must be 'first' (boards [planes, rows, columns]), 'last' "
                "([rows, columns, planes]) or null for what the shape suggests"
            )
        if problems:
            raise ConfigurationError(problems)


@NETWORKS.register("board_resnet")
def build(
    config: Mapping[str, Any], observation_space: gymnasium.Space[Any], heads: Heads, generator: torch.Generator
) -> Network:
    settings, tree = parse(BoardConfig, OWNER, config), SpaceTree(observation_space, "observation")

    def tower(planes: int, generator: torch.Generator) -> nn.Module:
        stem = convolution(planes, settings.channels, 3, 1, generator, padding=1)
        blocks = [Residual(settings.channels, generator) for _ in range(settings.blocks)]
        narrow = convolution(settings.channels, settings.cell_features, 1, 1, generator)
        return nn.Sequential(stem, *blocks, nn.ReLU(), narrow, nn.ReLU())

    def trunk() -> Trunk:
        hidden, vector = settings.hidden_size, settings.vector_hidden_size
        last = None if settings.planes is None else settings.planes == "last"
        encoder = ImageEncoder(tree, tower, 1, hidden, vector, generator, OWNER, last, cells=True)
        return Trunk(encoder, build_core(settings.core, encoder.size, generator))

    return ActorCritic(trunk, settings.shared, heads, settings.policy_gain, generator)
