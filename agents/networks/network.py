"""What a network is: an observation and a memory in, the policy's outputs, the value and the next memory out.

Acting steps it, learning unrolls it:

    memory = network.initial_memory(N)
    while True:
        outputs, memory = network.step(observation, memory)             # [N, ...]
    outputs, memory = network.unroll(observations, memory, begins)      # [T, N, ...]
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from agents.spaces import Leaves

Memory = dict[str, Tensor]  # name -> float32 [N, ...]; empty for a feed-forward network


class Heads:
    """How many numbers a network must give: `policy` for the distribution over actions, and `values` for the value.

    Of an action space that is a Dict or Tuple, `parts` says how many of `policy` belong to which leaf.
    """

    def __init__(self, parts: Mapping[str, int], bare: bool = True, values: int = 1) -> None:
        """`bare`: there is one part, which has no name. `values`: one for each reward channel."""
        self.parts, self.bare, self.values = dict(parts), bare, values
        self.policy = sum(parts.values())
        self._sizes = list(parts.values())

    def outputs(self, policy: Tensor, value: Tensor) -> Outputs:
        """From [..., policy] and [..., values] to what a network returns."""
        return Outputs(self.split(policy), self.squeeze(value))

    def split(self, policy: Tensor) -> Leaves:
        """[..., policy] as the distribution takes it."""
        if self.bare:
            return policy
        return dict(zip(self.parts, torch.split(policy, self._sizes, -1), strict=True))

    def squeeze(self, value: Tensor) -> Tensor:
        """[..., values] as [...] where there is one reward channel, as there mostly is."""
        return value.squeeze(-1) if self.values == 1 else value


class Outputs(NamedTuple):
    """Of N slots (or [T, N])."""

    policy: Leaves  # float32 [N, size of the head]; a dict of these where the action space is a Dict or Tuple
    value: Tensor  # float32 [N]; [N, C] of C reward channels


class Network(nn.Module):
    """A feed-forward network implements `step` alone; one with a memory also `unroll`, and says its `memory`."""

    memory: dict[str, tuple[int, ...]] = {}  # name -> shape of one slot's memory
    separate_value = False  # whether `value` shares no computation with `act`: values are had later then, all at once

    def initial_memory(self, n: int) -> Memory:
        """The memory of `n` slots where an episode begins: zeros float32 [n, ...], where the weights are."""
        if not self.memory:
            return {}
        device = next(self.parameters()).device
        return {name: torch.zeros(n, *shape, device=device) for name, shape in self.memory.items()}

    def step(self, observation: Leaves, memory: Memory) -> tuple[Outputs, Memory]:
        """Leaves [N, ...] and the memory before them -> outputs [N, ...] and the memory after them."""
        raise NotImplementedError

    def act(self, observation: Leaves, memory: Memory) -> tuple[Leaves, Memory]:
        """`step` for the policy's outputs alone: what a separate value trunk would cost is saved."""
        outputs, memory = self.step(observation, memory)
        return outputs.policy, memory

    def value(self, observation: Leaves, memory: Memory) -> Tensor:
        """`step` for the value alone, float32 [N]: what a separate policy trunk would cost is saved."""
        outputs, _ = self.step(observation, memory)
        return outputs.value

    def value_layer(self) -> nn.Linear | None:
        """The layer that gives the value, for `normalize_values`; None: there is none that is linear."""
        return None

    def unroll(self, observation: Leaves, memory: Memory, begins: Tensor) -> tuple[Outputs, Memory]:
        """T steps at once: leaves [T, N, ...], `memory` before the first -> outputs [T, N, ...], memory after the last.

        Where `begins` bool [T, N] is set an episode begins: the slot's memory is the initial one there, and no gradient
        flows to what came before.
        """
        if self.memory:
            raise NotImplementedError(f"{type(self).__name__} has a memory and must say how it unrolls")
        steps = begins.shape[:2]
        outputs, memory = self.step(flatten_steps(observation), memory)
        return Outputs(unflatten_steps(outputs.policy, steps), _unflatten(outputs.value, steps)), memory


def flatten_steps(leaves: Leaves) -> Leaves:
    """[T, N, ...] as [T * N, ...]."""
    if isinstance(leaves, Tensor):
        return leaves.flatten(0, 1)
    return {name: leaf.flatten(0, 1) for name, leaf in leaves.items()}


def unflatten_steps(leaves: Leaves, steps: tuple[int, ...]) -> Leaves:
    """[T * N, ...] as [T, N, ...]; `steps`: (T, N)."""
    if isinstance(leaves, Tensor):
        return _unflatten(leaves, steps)
    return {name: _unflatten(leaf, steps) for name, leaf in leaves.items()}


def _unflatten(leaf: Tensor, steps: tuple[int, ...]) -> Tensor:
    return leaf.view(*steps, *leaf.shape[1:])
