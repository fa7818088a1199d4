"""Sampler: the interface by which actors and leagues play, in one agent's environments or in turn-based games."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from torch import Tensor

from agents.checkpoints import load_weights
from agents.policies import Policy
from agents.trajectories import Trajectory


class SamplerClosed(Exception):
    """Raised by `collect` of a sampler that was closed while it waited."""


class Sampler(Protocol):
    """Plays with one policy. The loop that uses it:

    while True:
        if newer weights have come:
            sampler.load(weights, version, behaviour)
        learn_from(sampler.collect(budget))
    """

    policy: Policy
    version: int  # version of the weights that play now; -1 until some were loaded

    def load(self, weights: Mapping[str, Tensor], version: int, behaviour: Mapping[str, float] | None = None) -> None:
        """Play on with these weights; trajectories carry their `version`.

        `behaviour`: settings of the algorithm for policies that act, which `Algorithm.behaviour` gave with the weights.
        Raises CheckpointError, having changed nothing, for weights of another network.
        """
        ...

    def collect(self, budget: int) -> Trajectory:
        """Play on and return one Trajectory; episodes under way go on in the next call.

        `budget` is its size, in the sampler's unit: steps of every environment, or trajectories of seats of games.
        """
        ...


class ClosableSampler(Sampler, Protocol):
    """A Sampler that holds environments or threads."""

    def close(self) -> None:
        """Close environments and end threads."""
        ...


def load_into(
    policy: Policy, weights: Mapping[str, Tensor], version: int, behaviour: Mapping[str, float] | None
) -> None:
    """Load weights and behaviour into `policy`. Raises CheckpointError for weights of another network."""
    load_weights(policy, weights, f"weights of version {version}")
    policy.behaviour = behaviour or {}
