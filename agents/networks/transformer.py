"""`transformer`: a small causal transformer over the last steps of the episode.

Each layer keeps and attends to its own inputs of the last `memory` steps (Dai et al. 2019, Transformer-XL), so that a
step costs no more late in an episode than early; L layers see L times as far. Positions are rotary (Su et al. 2021):
only a step's age counts. Layers are normalised before attention and perceptron, which trains stably on rewards
(Parisotto et al. 2020).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from agents.configuration import parse
from agents.networks.core import CORES, Core
from agents.networks.network import Memory
from agents.operators.blocks import orthogonal, unset
from warren.errors import ConfigurationError

OWNER = "core 'transformer'"


@dataclass(frozen=True)
class TransformerConfig:
    """Settings of the core `transformer`."""

    size: int = 64  # numbers in a step's representation
    heads: int = 4  # heads of attention in each layer
    layers: int = 2  # stacked on each other
    memory: int = 32  # steps that a layer sees besides the present one

    def __post_init__(self) -> None:
        problems = [
            f"{name}={getattr(self, name)} of {OWNER} must be at least 1"
            for name in ("size", "heads", "layers", "memory")
            if getattr(self, name) < 1
        ]
        if not problems and self.size % (2 * self.heads):
            problems.append(
                f"size={self.size} of {OWNER} must be a multiple of 2 x heads ({2 * self.heads}): rotary positions "
                "turn each head's numbers in pairs"
            )
        if problems:
            raise ConfigurationError(problems)


class Transformer(Core):
    """A core whose memory is each layer's inputs of the last M steps, float32 [M, size], the newest last.

    "count", float32 [], says how many of them belong to the present episode.
    """

    def __init__(self, inputs: int, config: TransformerConfig, generator: torch.Generator) -> None:
        super().__init__()
        self.size, self.length = config.size, config.memory
        self.memory = {f"layer{i}": (config.memory, config.size) for i in range(config.layers)} | {"count": ()}
        self.embedding = linear(inputs, config.size, 1.0, generator)
        self.layers = nn.ModuleList(Layer(config.size, config.heads, generator) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.size)

    def step(self, features: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        begins = torch.zeros(1, features.shape[0], dtype=torch.bool, device=features.device)
        outputs, memory = self.unroll(features[None], memory, begins)
        return outputs[0], memory

    def unroll(self, features: Tensor, memory: Memory, begins: Tensor) -> tuple[Tensor, Memory]:
        visible, remembered = self._visible(memory["count"], begins)
        x = self.embedding(features.transpose(0, 1))  # [N, T, size]
        after = {"count": remembered.sum(1).to(memory["count"].dtype)}
        for i, layer in enumerate(self.layers):
            past = torch.cat([memory[f"layer{i}"], x], 1)  # [N, M + T, size]
            after[f"layer{i}"] = past[:, len(features) :].masked_fill(~remembered[:, :, None], 0)
            x = layer(x, past, visible)
        return self.norm(x).transpose(0, 1), after

    def _visible(self, count: Tensor, begins: Tensor) -> tuple[Tensor, Tensor]:
        """Return (visible bool [N, T, M + T], remembered bool [N, M]).

        `visible`: which of the M remembered and T new steps each new step attends to: itself, and those of the M before
        it that belong to its episode. `remembered`: which of the last M steps belong to the last step's episode.
        """
        steps, length = len(begins), self.length
        episode = begins.cumsum(0).T  # [N, T]: 0 for the memory's episode
        remembered = torch.arange(length, device=begins.device) >= length - count[:, None]  # [N, M]
        before = torch.where(remembered, 0, -1)  # -1, no episode, where nothing is remembered
        same = episode[:, :, None] == torch.cat([before, episode], 1)[:, None]
        age = (length + torch.arange(steps, device=begins.device))[:, None] - torch.arange(
            length + steps, device=begins.device
        )
        return same & (age >= 0) & (age <= length), same[:, -1, steps:]


class Layer(nn.Module):
    """Attention, then a perceptron, each added to its input."""

    def __init__(self, size: int, heads: int, generator: torch.Generator) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm, self.perceptron_norm = nn.LayerNorm(size), nn.LayerNorm(size)
        self.query = linear(size, size, 1.0, generator)
        self.key_value = linear(size, 2 * size, 1.0, generator)
        self.output = linear(size, size, 1.0, generator)
        self.perceptron = nn.Sequential(
            linear(size, 4 * size, 2**0.5, generator), nn.ReLU(), linear(4 * size, size, 1.0, generator)
        )

    def forward(self, x: Tensor, past: Tensor, visible: Tensor) -> Tensor:
        """Return [N, T, size] of x [N, T, size], its last M + T inputs [N, M + T, size], and bool [N, T, M + T]."""
        query = self.query(self.attention_norm(x))
        key, value = self.key_value(self.attention_norm(past)).chunk(2, -1)
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (query, key, value))
        query, key = rotated(query, past.shape[1] - x.shape[1]), rotated(key, 0)
        seen = functional.scaled_dot_product_attention(query, key, value, visible[:, None])
        x = x + self.output(seen.transpose(1, 2).flatten(2))
        out: Tensor = x + self.perceptron(self.perceptron_norm(x))
        return out


def rotated(x: Tensor, first: int) -> Tensor:
    """Return x [..., T, D] with the pairs (i, i + D/2) of step t rotated by (first + t) / 10000^(2 i / D) radians."""
    half = x.shape[-1] // 2
    position = torch.arange(first, first + x.shape[-2], device=x.device, dtype=torch.float32)
    angle = position[:, None] * 10000.0 ** (-torch.arange(half, device=x.device) / half)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    left, right = torch.split(x, half, -1)
    return torch.cat([left * cos - right * sin, left * sin + right * cos], -1)


def linear(inputs: int, outputs: int, gain: float, generator: torch.Generator) -> nn.Linear:
    """Return a layer whose weights are drawn from `generator`."""
    return orthogonal(unset(nn.Linear, inputs, outputs), gain, generator)


@CORES.register("transformer")
def build(config: Mapping[str, Any], inputs: int, generator: torch.Generator) -> Core:
    return Transformer(inputs, parse(TransformerConfig, OWNER, config), generator)
