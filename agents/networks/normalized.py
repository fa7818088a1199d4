"""A network around another one that normalises its observations and values by running moments.

The moments are buffers: published, checkpointed and loaded with the weights. Acting and learning only read them. After
each update the learner adds the observations that it learned from (`take_in`), so that during an update observations
are normalised as they were for the actors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from gymnasium import spaces
from torch import Tensor, nn

from agents.networks.network import Memory, Network, Outputs, Perceptrons
from agents.operators.normalization import RunningMoments, popart
from agents.spaces import Leaves, SpaceTree, is_image
from warren.errors import ConfigurationError

IMAGES = 255.0  # the largest number in an image of bytes


@dataclass(frozen=True)
class NormalizationConfig:
    """Settings of normalisation, which any network has."""

    normalize_observations: bool = False  # Box leaves, except images, by their mean and deviation
    normalize_values: bool = False  # the value head gives values in units of the returns' deviation: PopArt
    divide_images_by: float = IMAGES  # pixels are from 0 to 1 then; symbols of 0 to 10 in a uint8 image want 10
    observation_clip: float = 10.0  # deviations from the mean that a normalised observation is cut to

    def __post_init__(self) -> None:
        if not self.observation_clip > 0:
            raise ConfigurationError(f"observation_clip={self.observation_clip} of a network must be above 0")
        if not 0 < self.divide_images_by < float("inf"):
            raise ConfigurationError(f"divide_images_by={self.divide_images_by} of a network must be above 0")


class Normalized(Network):
    """A wrapper of `network`: it gets normalised leaves, and its values are turned into the reward's units."""

    def __init__(self, network: Network, tree: SpaceTree, values: int, config: NormalizationConfig) -> None:
        """`values`: reward channels. Raises ConfigurationError for normalize_values without a `value_layer`."""
        super().__init__()
        self.network, self.memory = network, network.memory
        self.has_value, self.separate_value = network.has_value, network.separate_value
        self._clip = config.observation_clip
        self._names: list[str] = []
        if config.normalize_observations:
            self._names = [
                name for name, leaf in tree.leaves.items() if isinstance(leaf, spaces.Box) and not is_image(leaf)
            ]
        self.observations = nn.ModuleList(RunningMoments(tree.leaves[name].shape or ()) for name in self._names)
        self.values = RunningMoments((values,)) if config.normalize_values else None
        if self.values is not None and network.value_layer() is None:
            raise ConfigurationError(
                "normalize_values: rescales the layer that outputs the value, which this network does not name; give "
                "it a method value_layer() that returns the nn.Linear, or leave normalize_values out"
            )

    @property
    def value_scale(self) -> Tensor | None:
        """Return the unit of values, float32 [values]; None where it is the reward's own."""
        return None if self.values is None else self.values.moments.deviation.float()

    def step(self, observation: Leaves, memory: Memory) -> tuple[Outputs, Memory]:
        outputs, memory = self.network.step(self.normalized(observation), memory)
        return self._denormalized(outputs), memory

    def act(self, observation: Leaves, memory: Memory) -> tuple[Leaves, Memory]:
        return self.network.act(self.normalized(observation), memory)

    def value(self, observation: Leaves, memory: Memory) -> Tensor:
        return self.in_units(self.network.value(self.normalized(observation), memory))

    def unroll(self, observation: Leaves, memory: Memory, begins: Tensor) -> tuple[Outputs, Memory]:
        outputs, memory = self.network.unroll(self.normalized(observation), memory, begins)
        return self._denormalized(outputs), memory

    @torch.no_grad()
    def take_in(self, observation: Leaves, target: Tensor | None) -> None:
        """Add observations [..., *shape] and targets of the value [..., values] to the moments.

        The value layer is rescaled, so that values in the reward's units stay as they were.
        """
        for name, moments in self._moments():
            moments.update(observation if isinstance(observation, Tensor) else observation[name])
        if self.values is not None and target is not None:
            layer = self.network.value_layer()
            assert layer is not None
            before = RunningMoments(self.values.mean.shape).to(self.values.mean.device)
            before.set(self.values.moments)
            self.values.update(target)
            weight, bias = popart(layer.weight, layer.bias, before.moments, self.values.moments)
            layer.weight.copy_(weight)
            layer.bias.copy_(bias)

    def _moments(self) -> list[tuple[str, RunningMoments]]:
        return [(name, cast(RunningMoments, part)) for name, part in zip(self._names, self.observations, strict=True)]

    def normalized(self, observation: Leaves) -> Leaves:
        """Return the observation with leaves normalised by their moments."""
        if isinstance(observation, Tensor):
            for _, moments in self._moments():
                observation = moments.normalize(observation, self._clip)
            return observation
        return observation | {
            name: moments.normalize(observation[name], self._clip)
            for name, moments in self._moments()
            if name in observation  # an actor has no privileged leaves
        }

    def perceptrons(self, value: bool) -> Perceptrons | None:
        return self.network.perceptrons(value) if self._is_unmodified(Normalized) else None

    def flattened(self, observation: Leaves) -> Tensor:
        return self.network.flattened(self.normalized(observation))

    def _denormalized(self, outputs: Outputs) -> Outputs:
        return outputs if self.values is None else Outputs(outputs.policy, self.in_units(outputs.value))

    def in_units(self, value: Tensor) -> Tensor:
        """Turn values [...] of one channel, or [..., C], into the reward's units."""
        if self.values is None:
            return value
        if len(self.values.mean) > 1:
            return self.values.denormalize(value)
        return self.values.denormalize(value.unsqueeze(-1)).squeeze(-1)
