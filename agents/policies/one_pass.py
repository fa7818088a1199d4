"""A perceptron's step over Discrete actions in one call of the library: logits, draw, log-probability and value.

Draws take one number a row of the generator, and so differ from torch's, which take one for each action.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from agents.native.library import library
from agents.native.perceptron import EXPONENTIAL, LIKELIEST, UNIFORM
from agents.networks import Network
from agents.networks.network import Perceptrons
from agents.policies.categorical import Categorical
from agents.policies.distribution import Distribution
from agents.spaces import Leaves


class OnePass:
    """The call, for as long as the weights stay in their tensors; `of` makes one where that is possible."""

    def __init__(self, network: Network, found: Perceptrons, actions: int) -> None:
        self._network, self._found, self._actions = network, found, actions
        self._valued = None if found.value is None else (found.value, found.of_value)

    @classmethod
    def of(cls, network: Network, distribution: Distribution, explores: bool, value: bool) -> OnePass | None:
        """Return it for steps of a policy of these, with or without a `value`; None where torch is to act.

        That is: actions that are not one Discrete, an explorer, other networks than perceptrons, a value that the
        network has not, weights that are not float32 on the CPU, too wide layers, no library.
        """
        if type(distribution) is not Categorical or explores or library() is None:
            return None
        found = network.perceptrons(value)
        if found is None or (value and found.value is None) or not found.policy.takes(found.of_policy):
            return None
        if found.value is not None and not found.value.takes(found.of_value):
            return None
        return cls(network, found, distribution.size)

    def __call__(
        self,
        leaves: Leaves,
        action_mask: Any,
        generator: torch.Generator,
        mode: str = "sample",
        noise: np.ndarray | None = None,
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Return (action, extras) as `ActingPolicy.step` does, whose arguments these are."""
        found, network = self._found, self._network
        x = network.flattened(leaves).contiguous()
        by, chance = LIKELIEST, None
        if mode == "sample" and noise is None:
            by, chance = UNIFORM, torch.rand(len(x), generator=generator)
        elif mode == "sample":
            by, chance = EXPONENTIAL, torch.as_tensor(noise, dtype=torch.float32).contiguous()
        mask = None
        if action_mask is not None:
            mask = torch.as_tensor(action_mask, dtype=torch.bool).expand(len(x), self._actions).contiguous()
        action, log_prob, values = found.policy.act(found.of_policy, x, mask, by, chance, self._valued)
        extras = {"log_prob": log_prob.numpy()}
        if values is not None:
            single = values.squeeze(1) if values.shape[1] == 1 else values
            extras["value"] = network.in_units(single).numpy()
        return action.numpy(), extras
