"""Network: an observation and a memory in; the policy's outputs, the value and the next memory out.

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

from agents.native.perceptron import Layer, Perceptron
from agents.spaces import Leaves

Memory = dict[str, Tensor]  # name -> float32 [N, ...]; empty for a feed-forward network


class Heads:
    """The sizes of a network's outputs: `policy` numbers for the distribution over actions, `values` for the value.

    `parts`: leaf of the action space -> its share of `policy`. `values` is 0 where no value is computed.
    """

    def __init__(self, parts: Mapping[str, int], bare: bool = True, values: int = 1) -> None:
        """`bare`: the action space is not a Dict or Tuple, its one part is called "". `values`: reward channels."""
        self.parts, self.bare, self.values = dict(parts), bare, values
        self.policy = sum(parts.values())
        self._sizes = list(parts.values())

    def outputs(self, policy: Tensor, value: Tensor) -> Outputs:
        """Make [..., policy] and [..., values] the Outputs of a network."""
        return Outputs(self.split(policy), self.squeeze(value))

    def split(self, policy: Tensor) -> Leaves:
        """Return [..., policy] as the distribution takes it: for a Dict or Tuple, leaf name -> its part."""
        if self.bare:
            return policy
        return dict(zip(self.parts, torch.split(policy, self._sizes, -1), strict=True))

    def nothing(self, policy: Leaves) -> Tensor:
        """Return the value [...] of a network that has none: zeros."""
        one = policy if isinstance(policy, Tensor) else next(iter(policy.values()))
        return one.new_zeros(one.shape[:-1])

    def squeeze(self, value: Tensor) -> Tensor:
        """Return [..., values] as [...] where there is one reward channel."""
        return value.squeeze(-1) if self.values == 1 else value


class Outputs(NamedTuple):
    """Outputs of a network for N slots (or T steps of them, [T, N])."""

    policy: Leaves  # float32 [N, size of the head]; a dict of these where the action space is a Dict or Tuple
    value: Tensor  # float32 [N]; [N, C] of C reward channels


class Perceptrons(NamedTuple):
    """A network that consists of perceptrons over its flat observation, for a Discrete, MultiDiscrete or Box action.

    Between hidden layers and heads each perceptron may have a recurrent cell; their memories have different names.
    """

    policy: Perceptron
    of_policy: list[Layer]
    value: Perceptron | None  # `policy` itself: its second head; None: no value
    of_value: list[Layer]
    prefixes: tuple[str, str] = ("", "")  # before the names of the policy's memory and of the value's


class Network(nn.Module):
    """Base of networks. A feed-forward one implements `step`; one with a memory also `unroll`, and sets `memory`."""

    memory: dict[str, tuple[int, ...]] = {}  # name -> shape of one slot's memory
    has_value = True
    separate_value = False  # True: `value` shares no computation with `act`, so values are computed later, all at once

    def initial_memory(self, n: int) -> Memory:
        """Return the memory of `n` slots where episodes begin: zeros float32 [n, ...] on the weights' device."""
        if not self.memory:
            return {}
        device = next(self.parameters()).device
        return {name: torch.zeros(n, *shape, device=device) for name, shape in self.memory.items()}

    def step(self, observation: Leaves, memory: Memory) -> tuple[Outputs, Memory]:
        """Take one step: leaves [N, ...] and the memory before it -> outputs [N, ...] and the memory after it."""
        raise NotImplementedError

    def act(self, observation: Leaves, memory: Memory) -> tuple[Leaves, Memory]:
        """Take a step for the policy's outputs alone, without computing a separate value trunk."""
        outputs, memory = self.step(observation, memory)
        return outputs.policy, memory

    def value(self, observation: Leaves, memory: Memory) -> Tensor:
        """Return the value alone, float32 [N] or [N, C], without computing a separate policy trunk."""
        outputs, _ = self.step(observation, memory)
        return outputs.value

    def value_layer(self) -> nn.Linear | None:
        """Return the linear layer that outputs the value, for `normalize_values`; None if there is none."""
        return None

    def perceptrons(self, value: bool) -> Perceptrons | None:
        """Return the perceptrons that this network consists of, with or without its value; None for others."""
        return None

    def _is_unmodified(self, kind: type[Network]) -> bool:
        """Return True for an instance of `kind` itself, none of whose methods has been replaced."""
        return type(self) is kind and not {"step", "act", "value"} & self.__dict__.keys()

    def flattened(self, observation: Leaves) -> Tensor:
        """Return the input of `perceptrons`, float32 [N, inputs]."""
        raise NotImplementedError

    def in_units(self, value: Tensor) -> Tensor:
        """Return values [N] or [N, C] of `perceptrons` in the reward's units."""
        return value

    def unroll(self, observation: Leaves, memory: Memory, begins: Tensor) -> tuple[Outputs, Memory]:
        """Take T steps at once: leaves [T, N, ...], `memory` before the first -> outputs [T, N, ...], memory after.

        Where `begins` bool [T, N] is True an episode begins: the slot's memory is the initial one there, and no
        gradient flows to earlier steps.
        """
        if self.memory:
            raise NotImplementedError(f"{type(self).__name__} has a memory and must implement unroll()")
        steps = begins.shape[:2]
        outputs, memory = self.step(flatten_steps(observation), memory)
        return Outputs(unflatten_steps(outputs.policy, steps), _unflatten(outputs.value, steps)), memory


def flatten_steps(leaves: Leaves) -> Leaves:
    """Return leaves [T, N, ...] as [T * N, ...]."""
    if isinstance(leaves, Tensor):
        return leaves.flatten(0, 1)
    return {name: leaf.flatten(0, 1) for name, leaf in leaves.items()}


def unflatten_steps(leaves: Leaves, steps: tuple[int, ...]) -> Leaves:
    """Return leaves [T * N, ...] as [T, N, ...]; `steps`: (T, N)."""
    if isinstance(leaves, Tensor):
        return _unflatten(leaves, steps)
    return {name: _unflatten(leaf, steps) for name, leaf in leaves.items()}


def _unflatten(leaf: Tensor, steps: tuple[int, ...]) -> Tensor:
    return leaf.view(*steps, *leaf.shape[1:])
