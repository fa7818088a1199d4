"""The registry of networks, and `build_network`, which builds one of them or the user's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import torch

from agents.networks.network import Heads, Network
from agents.networks.trial import require_step
from warren.errors import ConfigurationError
from warren.registry import Registry
from warren.user_code import blame, call, find

# (settings without the name, observation space, its outputs, generator of the initial weights) -> network
Builder = Callable[[Mapping[str, Any], gymnasium.Space[Any], Heads, torch.Generator], Network]
NETWORKS: Registry[Builder] = Registry("network")


def build_network(
    config: Mapping[str, Any], observation_space: gymnasium.Space[Any], heads: Heads, generator: torch.Generator
) -> Network:
    """Build the network that `config` describes; its `name` ("mlp" if absent) chooses it, the rest are its settings.

    A name with a colon is the user's Builder: "path/to/file.py:build" or "my.module:build". Raises UnknownName for an
    unknown name, ConfigurationError for wrong settings and for anything that the user's function raises.
    """
    settings = dict(config)
    name = str(settings.pop("name", "mlp"))
    if ":" not in name:
        return NETWORKS[name](settings, observation_space, heads, generator)
    with blame(f"network {name!r}"):
        build = find("network", name)
        network = call(f"network {name!r}", build, settings, observation_space, heads, generator)
    if not isinstance(network, Network):
        raise ConfigurationError(f"network {name!r} made a {type(network).__name__}, not an agents.networks.Network")
    require_step(network, name, observation_space, heads)
    return network
