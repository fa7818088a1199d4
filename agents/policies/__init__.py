"""Policies: from an observation to an action and its log-probability. `build_policy` chooses by the action space."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import torch
from gymnasium import spaces

from agents.networks import build_network
from agents.policies.categorical import CategoricalPolicy
from agents.policies.gaussian import GaussianPolicy
from agents.policies.policy import Policy
from warren.errors import ConfigurationError

__all__ = ["CategoricalPolicy", "GaussianPolicy", "Policy", "build_policy"]


def build_policy(
    network_config: Mapping[str, Any],
    observation_space: gymnasium.Space[Any],
    action_space: gymnasium.Space[Any],
    seed: int,
) -> Policy:
    """A policy for these spaces: categorical for Discrete actions, diagonal gaussian for Box ones.

    `seed` decides the initial weights and the actions drawn. Raises ConfigurationError for a network's unknown name or
    settings and for spaces that no policy takes.
    """
    generator = torch.Generator().manual_seed(seed)
    match action_space:
        case spaces.Discrete():
            network = build_network(network_config, observation_space, int(action_space.n), generator)
            return CategoricalPolicy(network, observation_space, action_space, seed)
        case spaces.Box() if action_space.dtype is not None and action_space.dtype.kind == "f":
            network = build_network(network_config, observation_space, action_space.low.size, generator)
            return GaussianPolicy(network, observation_space, action_space, seed)
        case _:
            raise ConfigurationError(
                f"action space {action_space} is neither Discrete nor a floating-point Box; wrap the environment "
                "(gymnasium.ActionWrapper) so that one number names each combination, or a Box of floats holds them"
            )
