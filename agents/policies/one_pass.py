"""A perceptron's step over one Discrete or Box action in one call of the library: draw, log-probability, value, memory.

Drawing Discrete actions takes one number per row from the generator, so the actions differ from those of torch, which
takes one for each action; a gaussian's actions are the same as torch's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from agents.native.acting import EXPONENTIAL, GAUSSIAN, LIKELIEST, OF_STATE, SQUASHED, UNIFORM, Acting, Parts
from agents.native.library import library
from agents.networks import Memory, Network
from agents.networks.network import Perceptrons
from agents.policies.bounded import StateGaussian
from agents.policies.categorical import Categorical
from agents.policies.distribution import Distribution
from agents.policies.gaussian import Gaussian, SquashedGaussian
from agents.spaces import Leaves

GAUSSIANS: dict[type[Distribution], int] = {Gaussian: GAUSSIAN, SquashedGaussian: SQUASHED, StateGaussian: OF_STATE}


class OnePass:
    """The call, usable as long as the weights stay in their tensors; `of` makes one where that is possible."""

    def __init__(self, network: Network, found: Perceptrons, distribution: Distribution) -> None:
        self._network, self._distribution = network, distribution
        before, after = found.prefixes
        value = None if found.value is None else Parts(found.value, found.of_value, after)
        self._acting = Acting(Parts(found.policy, found.of_policy, before), value)
        self._kind = GAUSSIANS.get(type(distribution))

    @classmethod
    def of(cls, network: Network, distribution: Distribution, explores: bool, value: bool) -> OnePass | None:
        """Return a OnePass for this network and distribution, with or without a `value`; None where torch has to act.

        Torch has to act without the library, with an explorer, for actions other than one Discrete or Box, and for
        deterministic Box actions. It also has to for networks other than perceptrons, for a value that the network does
        not have, for weights that are not float32 on the CPU, and for layers that are too wide.
        """
        known = type(distribution) is Categorical or type(distribution) in GAUSSIANS
        if not known or explores or library() is None:
            return None
        found = network.perceptrons(value)
        if found is None or (value and found.value is None) or not found.policy.takes(found.of_policy):
            return None
        if found.value is not None and not found.value.takes(found.of_value):
            return None
        return cls(network, found, distribution)

    def __call__(
        self,
        leaves: Leaves,
        memory: Memory,
        action_mask: Any,
        generator: torch.Generator,
        mode: str = "sample",
        noise: np.ndarray | None = None,
    ) -> tuple[np.ndarray, dict[str, np.ndarray], Memory]:
        """Return (action, extras, memory) as `ActingPolicy.step` does, for its arguments."""
        x = self._network.flattened(leaves).contiguous()
        action: Tensor
        if self._kind is None:
            action, *rest, memory = self._discrete(x, memory, action_mask, generator, mode, noise)
        else:
            action, *rest, memory = self._gaussian(x, memory, action_mask, generator, mode, noise)
        log_prob, values = rest
        extras = {"log_prob": log_prob.numpy()}
        if values is not None:
            single = values.squeeze(1) if values.shape[1] == 1 else values
            extras["value"] = self._network.in_units(single).numpy()
        return action.numpy(), extras, memory

    def _discrete(
        self,
        x: Tensor,
        memory: Memory,
        action_mask: Any,
        generator: torch.Generator,
        mode: str,
        noise: np.ndarray | None,
    ) -> tuple[Any, ...]:
        by, chance, mask, actions = LIKELIEST, None, None, self._distribution.size
        if mode == "sample" and noise is None:
            by, chance = UNIFORM, torch.rand(len(x), generator=generator)
        elif mode == "sample":
            by, chance = EXPONENTIAL, torch.as_tensor(noise, dtype=torch.float32).expand(len(x), actions).contiguous()
        if action_mask is not None:
            mask = torch.as_tensor(action_mask, dtype=torch.bool).expand(len(x), actions).contiguous()
        return self._acting.discrete(x, mask, by, chance, memory)

    def _gaussian(
        self,
        x: Tensor,
        memory: Memory,
        action_mask: Any,
        generator: torch.Generator,
        mode: str,
        noise: np.ndarray | None,
    ) -> tuple[Any, ...]:
        distribution, kind = self._distribution, self._kind
        assert isinstance(distribution, Gaussian) and kind is not None
        if action_mask is not None:  # raises: Box actions take no mask
            distribution.masked(x, action_mask)
        if noise is not None:
            distribution.drawn_by(x, torch.as_tensor(noise))
        log_std = distribution.added_log_std
        drawn = None
        if mode == "sample":
            drawn = torch.empty(len(x), len(log_std)).normal_(generator=generator)
        return self._acting.gaussian(x, kind, log_std, drawn, memory)
