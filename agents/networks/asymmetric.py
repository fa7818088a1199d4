"""An actor and a critic that see different things: only the value sees privileged keys of the observation.

This is an asymmetric actor-critic (Pinto et al. 2017) or, with several agents, the central value of centralised
training (Lowe et al. 2017). One description gives two networks: the actor's, for the observation without the
privileged keys, so that nothing of them can reach an action, and the critic's, for all of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import torch
from gymnasium import spaces
from torch import nn

from agents.networks.network import Heads, Memory, Network, Outputs
from agents.networks.registry import NETWORKS, build_network
from agents.spaces import Leaves, SpaceTree
from warren.errors import ConfigurationError, unknown_name

ACTOR, CRITIC = "policy.", "value."  # prefixes of the names of their memories


@dataclass(frozen=True)
class PrivilegedConfig:
    """The setting `privileged`, which any network has."""

    privileged: tuple[str, ...] = ()  # keys of observations that a value or algorithm sees, and the policy does not


def acting_space(space: gymnasium.Space[Any], privileged: Sequence[str]) -> gymnasium.Space[Any]:
    """Return the observation space without its privileged keys; `space` itself where there are none.

    Raises ConfigurationError for keys that it does not have, and where no key is left.
    """
    if not privileged:
        return space
    given = f"privileged={list(privileged)} of the network"
    if not isinstance(space, spaces.Dict):
        raise ConfigurationError(
            f"{given} names keys of observations, and these are {space}, not a Dict; have the environment return a "
            "Dict with what only the value may see under a key of its own"
        )
    unknown = [key for key in privileged if key not in space.spaces]
    if unknown:
        raise ConfigurationError([unknown_name("key in privileged of the network", key, space) for key in unknown])
    left = {key: part for key, part in space.spaces.items() if key not in privileged}
    if not left:
        raise ConfigurationError(f"{given} leaves the policy nothing to act by; leave out a key of {list(space)}")
    return spaces.Dict(left)


class Asymmetric(Network):
    """`actor` for the policy's outputs, `critic` for the value; each has a memory of its own, if any."""

    separate_value = True

    def __init__(self, actor: Network, critic: Network, seen: Sequence[str]) -> None:
        """`seen`: names of the leaves that the actor sees."""
        super().__init__()
        self.actor, self.critic, self._seen = actor, critic, list(seen)
        self.memory = _named(ACTOR, actor.memory) | _named(CRITIC, critic.memory)

    def step(self, observation: Leaves, memory: Memory) -> tuple[Outputs, Memory]:
        outputs, remembered = self.critic.step(observation, self._part(CRITIC, memory))
        policy, after = self.act(observation, memory)
        return Outputs(policy, outputs.value), after | _named(CRITIC, remembered)

    def act(self, observation: Leaves, memory: Memory) -> tuple[Leaves, Memory]:
        """See Network; `observation` need not have the privileged leaves."""
        policy, remembered = self.actor.act(self._visible(observation), self._part(ACTOR, memory))
        return policy, memory | _named(ACTOR, remembered)

    def value(self, observation: Leaves, memory: Memory) -> torch.Tensor:
        return self.critic.value(observation, self._part(CRITIC, memory))

    def value_layer(self) -> nn.Linear | None:
        return self.critic.value_layer()

    def unroll(self, observation: Leaves, memory: Memory, begins: torch.Tensor) -> tuple[Outputs, Memory]:
        acted, after = self.actor.unroll(self._visible(observation), self._part(ACTOR, memory), begins)
        judged, remembered = self.critic.unroll(observation, self._part(CRITIC, memory), begins)
        return Outputs(acted.policy, judged.value), _named(ACTOR, after) | _named(CRITIC, remembered)

    def _visible(self, observation: Leaves) -> Leaves:
        assert isinstance(observation, dict)
        return {name: observation[name] for name in self._seen}

    def _part(self, whose: str, memory: Memory) -> Memory:
        network = self.actor if whose == ACTOR else self.critic
        return {name: memory[f"{whose}{name}"] for name in network.memory}


class Hidden(Network):
    """An actor without a value, which sees only some leaves of the observation."""

    has_value = False

    def __init__(self, actor: Network, seen: Sequence[str]) -> None:
        """`seen`: names of these leaves."""
        super().__init__()
        self.actor, self.memory, self._seen = actor, actor.memory, list(seen)

    def step(self, observation: Leaves, memory: Memory) -> tuple[Outputs, Memory]:
        return self.actor.step(self._visible(observation), memory)

    def act(self, observation: Leaves, memory: Memory) -> tuple[Leaves, Memory]:
        return self.actor.act(self._visible(observation), memory)

    def unroll(self, observation: Leaves, memory: Memory, begins: torch.Tensor) -> tuple[Outputs, Memory]:
        return self.actor.unroll(self._visible(observation), memory, begins)

    def _visible(self, observation: Leaves) -> Leaves:
        assert isinstance(observation, dict)
        return {name: observation[name] for name in self._seen}


def build_asymmetric(
    config: Mapping[str, Any],
    space: gymnasium.Space[Any],
    visible: gymnasium.Space[Any],
    heads: Heads,
    generator: torch.Generator,
) -> Network:
    """Build the network that `config` describes twice: over `visible` for the actor and `space` for the critic, if
    there is a value.

    Raises ConfigurationError for shared=true, and what `build_network` raises.
    """
    settings = dict(config)
    if settings.get("shared"):
        raise ConfigurationError(
            "shared=true of the network: a trunk shared with the value would show the policy the privileged keys; "
            "leave out shared or privileged"
        )
    if settings.get("name", "mlp") in NETWORKS:
        settings["shared"] = True  # within each of the two networks: a second trunk would be computed for nothing
    actor = build_network(settings, visible, Heads(heads.parts, heads.bare, min(heads.values, 1)), generator)
    if not heads.values:
        return Hidden(actor, list(SpaceTree(visible, "observation").leaves))
    critic = build_network(settings, space, Heads({"": 1}, values=heads.values), generator)
    return Asymmetric(actor, critic, list(SpaceTree(visible, "observation").leaves))


def _named(whose: str, parts: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{whose}{name}": part for name, part in parts.items()}
