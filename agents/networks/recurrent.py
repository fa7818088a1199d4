"""`lstm` and `gru`: cores that remember by one recurrent layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from agents.configuration import parse
from agents.networks.core import CORES, Core
from agents.networks.network import Memory
from warren.errors import ConfigurationError


@dataclass(frozen=True)
class RecurrentConfig:
    """Settings of the cores `lstm` and `gru`."""

    size: int = 128  # of the state

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ConfigurationError(f"size={self.size} of a recurrent core must be at least 1")


class Recurrent(Core):
    """One LSTM or GRU layer, its weights orthogonal and its biases zero, as CleanRL's recurrent PPO starts it."""

    def __init__(
        self, layer: type[nn.LSTM] | type[nn.GRU], inputs: int, config: RecurrentConfig, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.size = config.size
        self.memory = dict.fromkeys(("h", "c") if layer is nn.LSTM else ("h",), (config.size,))
        # Not made where its weights are: its own initialisation would draw from torch's global generator.
        self.layer = layer(inputs, config.size, device="meta").to_empty(device="cpu")
        for name, parameter in self.layer.named_parameters():
            if name.startswith("weight"):
                nn.init.orthogonal_(parameter, 1.0, generator)
            else:
                nn.init.zeros_(parameter)

    def step(self, features: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        outputs, memory = self._stretch(features[None], memory)
        return outputs[0], memory

    def unroll(self, features: Tensor, memory: Memory, begins: Tensor) -> tuple[Tensor, Memory]:
        # Between two steps at which an episode begins in any slot, all slots go through the layer in one call.
        cuts = [0, *(begins.any(1).nonzero().flatten().tolist()), len(features)]
        outputs = []
        for first, last in pairwise(cuts):
            if first == last:  # an episode begins at step 0
                continue
            gone = begins[first, :, None]
            memory = {name: part.masked_fill(gone, 0) for name, part in memory.items()}
            stretch, memory = self._stretch(features[first:last], memory)
            outputs.append(stretch)
        return torch.cat(outputs), memory

    def _stretch(self, features: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        """Steps [T, N, inputs] of which none begins an episode."""
        state = tuple(memory[name][None] for name in self.memory)
        outputs, state = self.layer(features, state if len(state) > 1 else state[0])
        state = state if isinstance(state, tuple) else (state,)
        return outputs, {name: part[0] for name, part in zip(self.memory, state, strict=True)}


@CORES.register("lstm")
def build_lstm(config: Mapping[str, Any], inputs: int, generator: torch.Generator) -> Core:
    return Recurrent(nn.LSTM, inputs, parse(RecurrentConfig, "core 'lstm'", config), generator)


@CORES.register("gru")
def build_gru(config: Mapping[str, Any], inputs: int, generator: torch.Generator) -> Core:
    return Recurrent(nn.GRU, inputs, parse(RecurrentConfig, "core 'gru'", config), generator)
