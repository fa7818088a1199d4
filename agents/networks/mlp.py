"""`mlp`: an actor-critic of two separate perceptrons, as in Stable-Baselines3 and CleanRL; optionally a memory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import gymnasium
import torch
from torch import Tensor, nn

from agents.configuration import parse
from agents.networks.actor_critic import ActorCritic, Encoder, Trunk
from agents.networks.core import build_core
from agents.networks.flat import Flat
from agents.networks.network import Heads, Memory, Network, Outputs, Perceptrons
from agents.networks.registry import NETWORKS
from agents.operators.blocks import HIDDEN_LAYERS, MLP, ORTHOGONAL, UNIFORM
from agents.spaces import Leaves, SpaceTree
from warren.errors import ConfigurationError, unknown_name

OWNER = "network 'mlp'"
INITIALIZATIONS = (ORTHOGONAL, UNIFORM)


@dataclass(frozen=True)
class MLPConfig:
    """Settings of `mlp`: the same hidden layers for the policy's trunk and the value's."""

    hidden_sizes: tuple[int, ...] = (64, 64)  # units of each hidden layer; []: none, a linear policy
    activation: str = "tanh"  # after each hidden layer
    shared: bool = False  # one trunk for policy and value
    core: Mapping[str, Any] | None = None  # {name: lstm, size: 128}: a memory, after the hidden layers
    policy_gain: float | None = None  # gain of the policy's last layer, orthogonal; null: 0.01, or by `initialization`
    initialization: str | None = None  # orthogonal, or uniform as PyTorch's layers; null: uniform for values of actions

    def __post_init__(self) -> None:
        problems = []
        if any(size < 1 for size in self.hidden_sizes):
            problems.append(f"hidden_sizes={list(self.hidden_sizes)} of {OWNER} must all be at least 1")
        if self.policy_gain is not None and not 0 <= self.policy_gain < math.inf:
            problems.append(f"policy_gain={self.policy_gain} of {OWNER} must be at least 0 and finite")
        if self.activation not in HIDDEN_LAYERS:
            problems.append(unknown_name("activation", self.activation, HIDDEN_LAYERS))
        if self.initialization not in (None, *INITIALIZATIONS):
            problems.append(unknown_name("initialization", self.initialization, INITIALIZATIONS))
        if problems:
            raise ConfigurationError(problems)

    def last_gain(self, orthogonal: float) -> float | None:
        """Return the gain of a last layer: `orthogonal`, or None where layers begin uniform."""
        return None if self.initialization == UNIFORM else orthogonal

    @property
    def gain_of_policy(self) -> float | None:
        """Return the gain of the policy's last layer; None where it begins uniform."""
        return self.last_gain(0.01) if self.policy_gain is None else self.policy_gain


class MLPActorCritic(Network):
    """Two MLPs over the flattened observation.

    The policy's last layer starts near zero, for near-uniform first actions, unless it outputs values of actions.
    """

    separate_value = True

    def __init__(self, flat: Flat, heads: Heads, config: MLPConfig, generator: torch.Generator) -> None:
        super().__init__()
        sizes = [flat.size, *config.hidden_sizes]
        begins = config.initialization or ORTHOGONAL
        self.policy_trunk = MLP([*sizes, heads.policy], config.activation, config.gain_of_policy, generator, begins)
        self.has_value, gain = heads.values > 0, config.last_gain(1.0)
        self.value_trunk = (
            MLP([*sizes, heads.values], config.activation, gain, generator, begins) if heads.values else None
        )
        self.flat, self._plain, self._heads = flat, flat.plain, heads

    def step(self, observation: Leaves, memory: Memory) -> tuple[Outputs, Memory]:
        flat = self.flattened(observation)
        if self.value_trunk is None:
            policy = self._heads.split(self.policy_trunk(flat))
            return Outputs(policy, self._heads.nothing(policy)), memory
        return self._heads.outputs(self.policy_trunk(flat), self.value_trunk(flat)), memory

    def act(self, observation: Leaves, memory: Memory) -> tuple[Leaves, Memory]:
        return self._heads.split(self.policy_trunk(self.flattened(observation))), memory

    def value(self, observation: Leaves, memory: Memory) -> Tensor:
        if self.value_trunk is None:
            return self.step(observation, memory)[0].value
        return self._heads.squeeze(self.value_trunk(self.flattened(observation)))

    def value_layer(self) -> nn.Linear | None:
        return None if self.value_trunk is None else cast(nn.Linear, self.value_trunk.layers[-1])

    def perceptrons(self, value: bool) -> Perceptrons | None:
        if not self._heads.bare or not self._is_unmodified(MLPActorCritic):
            return None
        policy, other = self.policy_trunk, self.value_trunk
        if type(policy) is not MLP or type(other) not in (MLP, type(None)):  # replaced from outside
            return None
        if not value or other is None:
            return Perceptrons(policy.native, policy.weights(), None, [])
        return Perceptrons(policy.native, policy.weights(), other.native, other.weights())

    def flattened(self, observation: Leaves) -> Tensor:
        # Calling a module costs as much as a layer of so small a network, so plain numbers skip it.
        if self._plain and isinstance(observation, Tensor):
            return observation.flatten(1)
        flat: Tensor = self.flat(observation)
        return flat


class MLPEncoder(Encoder):
    """Hidden layers, each with its activation; without hidden layers, the flattened observation itself."""

    def __init__(self, flat: Flat, config: MLPConfig, generator: torch.Generator) -> None:
        super().__init__()
        self.flat, self.layers = flat, None
        self.size = flat.size
        if config.hidden_sizes:
            begins = config.initialization or ORTHOGONAL
            self.layers = MLP([flat.size, *config.hidden_sizes], config.activation, None, generator, begins)
            self.size = config.hidden_sizes[-1]

    def forward(self, observation: Leaves) -> Tensor:
        flat: Tensor = self.flat(observation)
        return flat if self.layers is None else self.layers.features(flat)

    def perceptron(self) -> tuple[nn.Module, MLP] | None:
        return None if self.layers is None else (self.flat, self.layers)


@NETWORKS.register("mlp")
def build(
    config: Mapping[str, Any], observation_space: gymnasium.Space[Any], heads: Heads, generator: torch.Generator
) -> Network:
    settings, tree = parse(MLPConfig, OWNER, config), SpaceTree(observation_space, "observation")
    if settings.core is None and not settings.shared:
        return MLPActorCritic(Flat(tree, OWNER), heads, settings, generator)

    def trunk() -> Trunk:
        encoder = MLPEncoder(Flat(tree, OWNER), settings, generator)
        return Trunk(encoder, build_core(settings.core, encoder.size, generator))

    return ActorCritic(trunk, settings.shared, heads, settings.gain_of_policy, generator)
