"""A step of a user's own network as soon as it is built: a fault is named before a run starts, not by its actors."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import gymnasium
import torch
from gymnasium.vector.utils import concatenate, create_empty_array
from torch import Tensor

from agents.networks.network import Heads, Network, Outputs
from agents.spaces import SpaceTree
from warren.errors import ConfigurationError
from warren.user_code import blame

SLOTS = 3


def require_step(network: Network, name: str, space: gymnasium.Space[Any], heads: Heads) -> None:
    """Step the network on observations of `space`.

    Raises ConfigurationError for what the network lacks, for an error of its step, and for unfit results.
    """
    if lacking := _lacking(network):
        raise ConfigurationError(f"network {name!r} made a {type(network).__name__} {lacking}")
    device = next(network.parameters()).device
    observation = SpaceTree(space, "observation").tensors(_observations(space), device)
    training = network.training
    network.eval()  # in training a batch norm would count these observations
    try:
        with blame(f"network {name!r}: step()"), torch.random.fork_rng(devices=[]), torch.no_grad():
            given = network.step(observation, network.initial_memory(SLOTS))
    finally:
        network.train(training)
    if fault := _fault(given, heads, network):
        raise ConfigurationError(f"network {name!r}: step() {fault}")


def _lacking(network: Network) -> str:
    """Return what the network has to be given before it can be stepped and learn; "" for nothing."""
    kind = type(network)
    if kind.step is Network.step:
        return "without a method step(observation, memory); give it one, as agents.networks.Network describes it"
    if network.memory and kind.unroll is Network.unroll:
        return (
            "with a memory and without a method unroll(observation, memory, begins); give it one, as "
            "agents.networks.Network describes it"
        )
    if next(network.parameters(), None) is None:
        return "without weights; keep its layers as attributes of self, and lists of layers in a torch.nn.ModuleList"
    return ""


def _observations(space: gymnasium.Space[Any]) -> Any:
    """Return SLOTS random observations, always the same, without touching the space's own generator."""
    drawn = deepcopy(space)
    drawn.seed(0)
    batch: Any = create_empty_array(space, SLOTS)
    return concatenate(space, [drawn.sample() for _ in range(SLOTS)], batch)


def _fault(given: Any, heads: Heads, network: Network) -> str:
    """Return what is wrong with the results of a step; "" if nothing is."""
    if not isinstance(given, tuple) or len(given) != 2 or not isinstance(given[0], Outputs):
        found = "an Outputs" if isinstance(given, Outputs) else f"a {type(given).__name__}"
        return f"gave {found}; it must give two values: self.heads.outputs(policy, value), and the memory"
    (policy, value), memory = given
    for part, size in heads.parts.items():
        shape = _shape(policy if isinstance(policy, Tensor) else policy.get(part))
        if shape != [SLOTS, size]:
            where = "" if heads.bare else f" for {part!r}"
            return f"gave outputs of the policy{where} of shape {shape}; it must be {[SLOTS, size]}, of heads.policy"
    wanted = [SLOTS] if heads.values == 1 else [SLOTS, heads.values]
    if network.has_value and heads.values and _shape(value) != wanted:
        return f"gave values of shape {_shape(value)}; it must be {wanted}, of heads.values"
    for part, sizes in network.memory.items():
        shape = _shape(memory.get(part) if isinstance(memory, dict) else None)
        if shape != [SLOTS, *sizes]:
            return f"gave the memory {part!r} of shape {shape}; it must be {[SLOTS, *sizes]}, of the attribute memory"
    return ""


def _shape(part: Any) -> list[int] | str:
    return list(part.shape) if isinstance(part, Tensor) else f"none ({type(part).__name__})"
