"""The encoder of observations with images: a convolutional network per image, a linear layer for the other leaves."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn import functional

from agents.native.images import scaled_images
from agents.networks.actor_critic import Encoder
from agents.networks.flat import Numbers, flat_leaf
from agents.operators.blocks import orthogonal, unset
from agents.spaces import Leaves, SpaceTree, is_image
from warren.errors import ConfigurationError

# (channels, generator of the weights) -> [N, channels, H, W] to [N, ...]
Convolutions = Callable[[int, torch.Generator], nn.Module]


class ImageEncoder(Encoder):
    """Images through convolutions and a linear layer of `hidden` features each, all other leaves through one layer.

    That layer has `vector_hidden` features. A ReLU follows each layer; the features are concatenated.
    """

    def __init__(
        self,
        tree: SpaceTree,
        convolutions: Convolutions,
        smallest: int,
        hidden: int,
        vector_hidden: int,
        generator: torch.Generator,
        owner: str,
        channels_last: bool | None = None,
        cells: bool = False,
    ) -> None:
        """`smallest`: the smallest height or width that the convolutions take.

        `channels_last`: whether an image's channels are its last dimension; None: they are the first or last,
        whichever makes the other two equal, else the shorter one. `cells`: the output of the convolutions is among the
        features, in addition to the linear layer's. Raises ConfigurationError for observations without an image, and
        for images that are too small.
        """
        super().__init__()
        images = {
            name: leaf
            for name, leaf in tree.leaves.items()
            if isinstance(leaf, spaces.Box) and len(leaf.shape) in (3, 4)
        }
        if not images:
            raise ConfigurationError(
                f"{owner} takes observations with an image (a Box [C, H, W] or [H, W, C], or frames of those); "
                f"{tree.space} has none; use network=mlp, which takes any"
            )
        self.images = nn.ModuleList(
            Image(name, leaf, convolutions, smallest, hidden, generator, owner, channels_last, cells)
            for name, leaf in images.items()
        )
        others = {name: leaf for name, leaf in tree.leaves.items() if name not in images}
        flat = [flat_leaf(name, leaf, owner) for name, leaf in others.items()]
        self.others = nn.ModuleList(flat)
        self._images, self._others = list(images), list(others)
        self.size = sum(cast(Image, image).size for image in self.images)
        self.linear = None
        if others:
            self.linear = linear(sum(leaf.size for leaf in flat), vector_hidden, generator)
            self.size += vector_hidden

    def forward(self, observation: Leaves) -> Tensor:
        if isinstance(observation, Tensor):
            features: Tensor = self.images[0](observation)
            return features
        parts = [image(observation[name]) for name, image in zip(self._images, self.images, strict=True)]
        if self.linear is not None:
            flat = [leaf(observation[name]) for name, leaf in zip(self._others, self.others, strict=True)]
            parts.append(functional.relu(self.linear(torch.cat(flat, -1))))
        return torch.cat(parts, -1)


class Image(nn.Module):
    """One image [N, C, H, W], [N, H, W, C], or such with frames before it -> float32 [N, size].

    Frames count as channels. Bytes are divided by 255.
    """

    def __init__(
        self,
        name: str,
        leaf: spaces.Box,
        convolutions: Convolutions,
        smallest: int,
        hidden: int,
        generator: torch.Generator,
        owner: str,
        channels_last: bool | None = None,
        cells: bool = False,
    ) -> None:
        super().__init__()
        self.scale = 1 / 255 if is_image(leaf) else 1.0
        *frames, first, middle, last = leaf.shape
        self.channels_last = _channels_last(first, middle, last) if channels_last is None else channels_last
        height, width = leaf.shape[-3:-1] if self.channels_last else leaf.shape[-2:]
        if min(height, width) < smallest:
            raise ConfigurationError(
                f"{owner} takes images of at least {smallest} x {smallest}, {name or 'this one'!r} is {height} x "
                f"{width} (shape {list(leaf.shape)}); set smaller kernels and strides, or use network=impala_resnet, "
                "which takes smaller ones, or network=mlp, which takes any"
            )
        channels = (frames[0] if frames else 1) * (last if self.channels_last else first)
        self.convolutions = convolutions(channels, generator)
        with torch.no_grad():
            size = self.convolutions(torch.zeros(1, channels, height, width)).flatten(1).shape[1]
        self.linear = linear(size, hidden, generator)
        self.cells, self.size = cells, hidden + (size if cells else 0)

    def forward(self, x: Tensor) -> Tensor:
        if self.channels_last:
            x = x.movedim(-1, -3)
        if x.dim() == 5:
            x = x.flatten(1, 2)
        cells = self.convolutions(self._numbers(x)).flatten(1)
        hidden = functional.relu(self.linear(cells))
        return torch.cat([cells, hidden], -1) if self.cells else hidden

    def _numbers(self, x: Tensor) -> Tensor:
        """Return the scaled numbers of x [N, C, H, W], channels last: fastest for convolutions, even of 6 x 7 cells."""
        if (scaled := scaled_images(x, self.scale)) is not None:
            return scaled
        x = x.contiguous(memory_format=torch.channels_last).float()
        return x * self.scale if self.scale != 1.0 else x


def _channels_last(first: int, middle: int, last: int) -> bool:
    if (first == middle) != (middle == last):
        return first == middle
    return last < first


def divide_images(network: nn.Module, divisor: float) -> None:
    """Make `network` divide the bytes of images by `divisor`. Raises ConfigurationError if it takes no images."""
    taking = [one for one in network.modules() if isinstance(one, Image | Numbers) and one.scale != 1.0]
    if not taking:
        raise ConfigurationError(
            f"divide_images_by={divisor:g} of the network: it divides no images, which are uint8 from 0 to 255 in "
            "three or four dimensions; leave it out"
        )
    for one in taking:
        one.scale = 1 / divisor


def linear(inputs: int, outputs: int, generator: torch.Generator) -> nn.Linear:
    """Return a layer initialised for a ReLU after it."""
    layer = unset(nn.Linear, inputs, outputs)
    return orthogonal(layer, 2**0.5, generator)


def convolution(
    inputs: int, outputs: int, kernel: int, stride: int, generator: torch.Generator, padding: int = 0
) -> nn.Conv2d:
    """Return a convolution with orthogonal weights and a bias of 0."""
    layer = unset(nn.Conv2d, inputs, outputs, kernel, stride, padding)
    nn.init.orthogonal_(layer.weight, 2**0.5, generator)
    assert layer.bias is not None
    nn.init.zeros_(layer.bias)
    return layer


class Residual(nn.Module):
    """Two convolutions, added to their input."""

    def __init__(self, channels: int, generator: torch.Generator) -> None:
        super().__init__()
        self.first, self.second = (convolution(channels, channels, 3, 1, generator, padding=1) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        added: Tensor = self.second(functional.relu(self.first(functional.relu(x))))
        return x + added
