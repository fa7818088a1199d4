"""What a core is: features in, features and a memory out. It stands between a network's encoder and its heads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from agents.networks.network import Memory
from warren.registry import Registry


class Core(nn.Module):
    """`memory`: name -> shape of one slot's memory, as Network has it; `size`: features that come out."""

    memory: dict[str, tuple[int, ...]]
    size: int

    def step(self, features: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        """[N, inputs] and the memory before -> [N, size] and the memory after."""
        raise NotImplementedError

    def unroll(self, features: Tensor, memory: Memory, begins: Tensor) -> tuple[Tensor, Memory]:
        """[T, N, inputs], memory before the first -> [T, N, size], memory after the last; equals T steps.

        Where `begins` bool [T, N] is set, the memory is zeros, and no gradient flows to what came before.
        """
        raise NotImplementedError


# (settings without the name, features that go in, generator of the initial weights) -> core
CORES: Registry[Callable[[Mapping[str, Any], int, torch.Generator], Core]] = Registry("core")


def build_core(config: Mapping[str, Any] | None, inputs: int, generator: torch.Generator) -> Core | None:
    """The core that `config` describes: its `name` chooses it, the rest are its settings. None: no core, no memory.

    Raises UnknownName for the name and ConfigurationError for the settings.
    """
    if config is None:
        return None
    settings = dict(config)
    return CORES[str(settings.pop("name", None))](settings, inputs, generator)
