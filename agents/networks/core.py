"""Core: the part of a network with a memory, between its encoder and its heads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from agents.native.perceptron import Layer
from agents.networks.network import Memory
from warren.registry import Registry


class Core(nn.Module):
    """A module from features to `size` features. `memory`: name -> shape of one slot's memory."""

    memory: dict[str, tuple[int, ...]]
    size: int

    def step(self, features: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        """Take one step: [N, inputs] and the memory before it -> [N, size] and the memory after it."""
        raise NotImplementedError

    def unroll(self, features: Tensor, memory: Memory, begins: Tensor) -> tuple[Tensor, Memory]:
        """Take T steps at once: [T, N, inputs], memory before the first -> [T, N, size], memory after the last.

        Where `begins` bool [T, N] is True, the memory is zeros, and no gradient flows to earlier steps.
        """
        raise NotImplementedError

    def gates(self) -> tuple[str, list[Layer]] | None:
        """Return (its kind, the layers of its gates) of a core that the compiled library computes; else None."""
        return None


# (settings without the name, features that go in, generator of the initial weights) -> core
CORES: Registry[Callable[[Mapping[str, Any], int, torch.Generator], Core]] = Registry("core")


def build_core(config: Mapping[str, Any] | None, inputs: int, generator: torch.Generator) -> Core | None:
    """Build the core that `config` describes: its `name` chooses it, the rest are its settings; None for None.

    Raises UnknownName for the name and ConfigurationError for the settings.
    """
    if config is None:
        return None
    settings = dict(config)
    return CORES[str(settings.pop("name", None))](settings, inputs, generator)
