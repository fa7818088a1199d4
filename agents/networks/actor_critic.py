"""An actor-critic of any encoder and core; policy and value share a trunk or have one each."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn

from agents.native.perceptron import Layer, Perceptron
from agents.networks.core import Core
from agents.networks.network import Heads, Memory, Network, Outputs, Perceptrons, flatten_steps
from agents.operators.blocks import MLP, linear
from agents.spaces import Leaves


class Encoder(nn.Module):
    """A module from leaves [N, ...] to features float32 [N, size]."""

    size: int

    def forward(self, observation: Leaves) -> Tensor:
        raise NotImplementedError

    def perceptron(self) -> tuple[nn.Module, MLP] | None:
        """Return (the module that flattens leaves, the layers after it) if the encoder is just these, else None."""
        return None


class Trunk(nn.Module):
    """An encoder and, with a memory, a core: from leaves to features."""

    def __init__(self, encoder: Encoder, core: Core | None) -> None:
        super().__init__()
        self.encoder, self.core = encoder, core
        self.size = encoder.size if core is None else core.size
        self.memory = {} if core is None else core.memory

    def step(self, observation: Leaves, memory: Memory) -> tuple[Tensor, Memory]:
        features = self.encoder(observation)
        return (features, memory) if self.core is None else self.core.step(features, memory)

    def unroll(self, observation: Leaves, memory: Memory, begins: Tensor) -> tuple[Tensor, Memory]:
        features = self.encoder(flatten_steps(observation)).unflatten(0, begins.shape)
        return (features, memory) if self.core is None else self.core.unroll(features, memory, begins)


class ActorCritic(Network):
    """One or two trunks, with a linear layer for the policy and one for the value.

    The policy's layer starts near zero, for nearly uniform first actions; with a gain of None it starts as torch's do.
    Each of two trunks has a memory of its own, whose names begin with "policy." and "value.".
    """

    def __init__(
        self,
        trunk: Callable[[], Trunk],
        shared: bool,
        heads: Heads,
        policy_gain: float | None,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.has_value = heads.values > 0
        names = ("shared",) if shared else ("policy", "value") if self.has_value else ("policy",)
        self.trunks = nn.ModuleDict({name: trunk() for name in names})
        self._policy_trunk, self._value_trunk = names[0], names[-1]
        size = cast(Trunk, self.trunks[self._policy_trunk]).size
        value_gain = None if policy_gain is None else 1.0
        self.policy_head = linear(size, heads.policy, policy_gain, generator)
        self.value_head = linear(size, heads.values, value_gain, generator) if self.has_value else None
        self._heads = heads
        self.separate_value = not shared
        self._native: dict[str, Perceptron] = {}  # by trunk
        self.memory = {
            _named(name, part): shape for name in self.trunks for part, shape in self._trunk(name).memory.items()
        }

    def step(self, observation: Leaves, memory: Memory) -> tuple[Outputs, Memory]:
        return self._run(lambda trunk, part: trunk.step(observation, part), memory)

    def unroll(self, observation: Leaves, memory: Memory, begins: Tensor) -> tuple[Outputs, Memory]:
        return self._run(lambda trunk, part: trunk.unroll(observation, part, begins), memory)

    def act(self, observation: Leaves, memory: Memory) -> tuple[Leaves, Memory]:
        features, after = self._trunk(self._policy_trunk).step(observation, self._part(self._policy_trunk, memory))
        return self._heads.split(self.policy_head(features)), memory | self._named(self._policy_trunk, after)

    def value(self, observation: Leaves, memory: Memory) -> Tensor:
        if self.value_head is None:
            return self.step(observation, memory)[0].value
        features, _ = self._trunk(self._value_trunk).step(observation, self._part(self._value_trunk, memory))
        return self._heads.squeeze(self.value_head(features))

    def value_layer(self) -> nn.Linear | None:
        return self.value_head

    def perceptrons(self, value: bool) -> Perceptrons | None:
        """See Network; with two trunks only for those with a core: `mlp` without one is no ActorCritic."""
        policy, other = self._trunk(self._policy_trunk), self._trunk(self._value_trunk)
        if self._flattening() is None or (policy is not other and policy.core is None):
            return None
        value = value and self.has_value
        layers, others = self._layers(policy), self._layers(other)
        if layers is None or others is None:
            return None
        both = (self.policy_head, self.value_head)
        heads: list[Layer] = [(head.weight, head.bias) for head in both if head is not None]
        prefixes = (_named(self._policy_trunk, ""), _named(self._value_trunk, ""))
        if policy is other:
            native, of_both = self._computing(self._policy_trunk, len(heads)), layers + heads
            return Perceptrons(native, of_both, native if value else None, of_both, prefixes)
        native, second = (self._computing(name, 1) for name in (self._policy_trunk, self._value_trunk))
        return Perceptrons(native, layers + heads[:1], second if value else None, others + heads[1:], prefixes)

    def flattened(self, observation: Leaves) -> Tensor:
        flattening = self._flattening()
        assert flattening is not None
        flat: Tensor = flattening(observation)
        return flat

    def _flattening(self) -> nn.Module | None:
        """Return the module that flattens observations, for one action and encoders that are perceptrons; else None."""
        if not self._heads.bare or not self._is_unmodified(ActorCritic):
            return None
        encoder = self._trunk(self._policy_trunk).encoder.perceptron()
        return None if encoder is None else encoder[0]

    def _layers(self, trunk: Trunk) -> list[Layer] | None:
        encoder = trunk.encoder.perceptron()
        gates = None if trunk.core is None else trunk.core.gates()
        if encoder is None or (trunk.core is not None and gates is None):
            return None
        return encoder[1].weights() + ([] if gates is None else gates[1])

    def _computing(self, name: str, heads: int) -> Perceptron:
        if name not in self._native:
            trunk = self._trunk(name)
            encoder, gates = trunk.encoder.perceptron(), None if trunk.core is None else trunk.core.gates()
            assert encoder is not None
            self._native[name] = Perceptron(encoder[1].activation, heads, None if gates is None else gates[0])
        return self._native[name]

    def _run(self, run: Callable[[Trunk, Memory], tuple[Tensor, Memory]], memory: Memory) -> tuple[Outputs, Memory]:
        features: dict[str, Tensor] = {}
        after: Memory = {}
        for name in self.trunks:
            features[name], part = run(self._trunk(name), self._part(name, memory))
            after |= self._named(name, part)
        policy, value = features[self._policy_trunk], features[self._value_trunk]
        if self.value_head is None:
            output = self._heads.split(self.policy_head(policy))
            return Outputs(output, self._heads.nothing(output)), after
        return self._heads.outputs(self.policy_head(policy), self.value_head(value)), after

    def _trunk(self, name: str) -> Trunk:
        return cast(Trunk, self.trunks[name])

    def _part(self, trunk: str, memory: Memory) -> Memory:
        """Return the memory of one trunk, by the trunk's own names."""
        return {name: memory[_named(trunk, name)] for name in self._trunk(trunk).memory}

    def _named(self, trunk: str, memory: Memory) -> Memory:
        return {_named(trunk, name): part for name, part in memory.items()}


def _named(trunk: str, name: str) -> str:
    return name if trunk == "shared" else f"{trunk}.{name}"
