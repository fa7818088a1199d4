"""Observations as one vector, the input of a perceptron."""

from __future__ import annotations

from math import prod
from typing import Any

import gymnasium
import torch
from gymnasium import spaces
from torch import Tensor, nn

from agents.spaces import Leaves, SpaceTree, dtype_of, is_image
from warren.errors import ConfigurationError

LARGEST = 4096  # values of a Discrete: its one-hot vector is as long


class Numbers(nn.Module):
    """A module from numbers [N, ...] to float32 [N, size], times `scale`."""

    def __init__(self, size: int, scale: float = 1.0) -> None:
        super().__init__()
        self.size, self.scale = size, scale

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(1).float() if x.dim() > 1 else x[:, None].float()
        return flat if self.scale == 1.0 else flat * self.scale


class OneHot(nn.Module):
    """A module from integers [N, ...], each one of `counts` values from `starts` on, to float32 [N, sum of counts]."""

    values: Tensor  # int64 [size]: the number that each place stands for
    columns: Tensor  # int64 [size]: which of the numbers is meant

    def __init__(self, counts: list[int], starts: list[int]) -> None:
        super().__init__()
        self.size, self.numbers = sum(counts), len(counts)
        values = torch.cat([start + torch.arange(count) for count, start in zip(counts, starts, strict=True)])
        columns = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
        # Buffers, so that they are where the weights are; not persistent: a checkpoint holds weights alone.
        self.register_buffer("values", values, persistent=False)
        self.register_buffer("columns", columns, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.eq(x.reshape(x.shape[0], self.numbers)[:, self.columns], self.values).float()


class Flat(nn.Module):
    """A module from leaves [N, ...] to float32 [N, size], the leaves concatenated.

    Box as it is (images divided by 255), MultiBinary as 0 and 1, Discrete and MultiDiscrete one-hot.
    """

    def __init__(self, tree: SpaceTree, owner: str) -> None:
        """Errors name `owner` ("network 'mlp'"). Raises ConfigurationError for a Discrete that is too large."""
        super().__init__()
        self.names = list(tree.leaves)
        leaves = [flat_leaf(name, leaf, owner) for name, leaf in tree.leaves.items()]
        self.leaves = nn.ModuleList(leaves)
        self.size = sum(leaf.size for leaf in leaves)
        # True where `forward` amounts to `flatten(1)`.
        self.plain = tree.bare and dtype_of(tree.space) == torch.float32 and bool(tree.space.shape)

    def forward(self, observation: Leaves) -> Tensor:
        if isinstance(observation, Tensor):
            flat: Tensor = self.leaves[0](observation)
            return flat
        return torch.cat([leaf(observation[name]) for name, leaf in zip(self.names, self.leaves, strict=True)], -1)


def flat_leaf(name: str, leaf: gymnasium.Space[Any], owner: str) -> Numbers | OneHot:
    """Return the module that makes one leaf a vector. Raises ConfigurationError for a Discrete that is too large."""
    match leaf:
        case spaces.Discrete():
            counts, starts = [int(leaf.n)], [int(leaf.start)]
        case spaces.MultiDiscrete():
            counts, starts = leaf.nvec.ravel().tolist(), leaf.start.ravel().tolist()
        case _:
            return Numbers(prod(leaf.shape or ()), 1 / 255 if is_image(leaf) else 1.0)
    if max(counts) > LARGEST:
        raise ConfigurationError(
            f"{owner} takes Discrete observations of at most {LARGEST} values, {name or 'this one'!r} is {leaf}; "
            "encode the number in another way, as coordinates or digits (gymnasium.wrappers.TransformObservation)"
        )
    return OneHot(counts, starts)
