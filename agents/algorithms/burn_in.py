"""Burn-in: steps at an unroll's head that only bring its memory up to date with the weights that learn.

The memory at the beginning of an unroll was made by the weights that acted, which are older than those that learn now.
With `burn_in` B the network is unrolled over the first B of T steps from that stored memory, without gradients. The
resulting memory is where the other T - B steps start, which are learned from. This is the "stored state with burn-in"
of R2D2 (Kapturowski et al. 2019, section 3). The first B steps have no loss. Unlike R2D2's, unrolls do not overlap
here,
so the share B / T of the sampled steps is not learned from.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from agents.algorithms.settings import AlgorithmConfig, Allowed
from agents.networks import Memory
from agents.policies import Policy
from warren.trees import Tree


@dataclass(frozen=True)
class BurnInConfig(AlgorithmConfig):
    """The setting `burn_in`, of algorithms with a ratio or a correction for older weights."""

    burn_in: int = 0  # steps of each unroll; for networks with a memory

    def allowed(self) -> Allowed:
        return super().allowed() | {"burn_in": ("at least 0", self.burn_in >= 0)}


@dataclass(frozen=True)
class Head:
    """The first B steps of unrolls: leaves of observations [B, N, ...], and bool [B, N] as `begins` of Minibatch."""

    observation: Tree
    begins: Tensor

    def remembered(self, policy: Policy, memory: Memory) -> Memory:
        """Return the memory of `policy` after these steps, from `memory` [N, ...] on, without gradients."""
        with torch.no_grad():
            return policy.remember(self.observation, memory, self.begins)


def problems(burn_in: int, has_memory: bool, unroll_length: int | None) -> Iterator[str]:
    """Yield why a burn-in of this length does not suit unrolls of `unroll_length` (None: not known)."""
    if burn_in and not has_memory:
        yield (
            f"algorithm.burn_in: {burn_in} steps are to bring a memory up to date, and this network has none; give it "
            "one (+network.core.name=lstm), or leave burn_in out"
        )
    elif unroll_length is not None and burn_in >= unroll_length > 0:
        yield (
            f"algorithm.burn_in: {burn_in} steps leave none to learn from of an unroll of unroll_length "
            f"{unroll_length}; lower the one or raise the other"
        )
