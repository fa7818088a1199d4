"""A segment of steps by the same weights: log-probabilities and values are computed at its end, which is faster."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import torch
from torch import Tensor

from agents.networks import Memory
from agents.networks.network import flatten_steps
from agents.policies.policy import Policy
from warren.trees import map_tree, take

EXTRAS = ("log_prob", "value")
AT_ONCE = 2048  # observations in a pass of `values`: a layer's outputs for them stay in the processor's cache


class Segment:
    """T steps of N slots; `act` makes one, `extras` follow the last."""

    def __init__(self, policy: Policy, generator: torch.Generator, names: Collection[str] = EXTRAS) -> None:
        """Draw actions from `generator`; compute the extras `names`, of EXTRAS.

        A value that has a memory is computed at each step all the same, since its memory has to go on.
        """
        self._policy, self._generator, self._names = policy, generator, names
        network = policy.network
        later = network.separate_value or "value" not in names  # `values` computes them at the end, if asked for
        self._alone = later and not network.memory
        # Looked up once: the explorer changes only between segments.
        self._draw = policy.distribution.sample if policy.explorer is None else policy.draw
        self._at_once = policy.one_pass(not self._alone)
        self._outputs: list[Any] = []
        self._log_probs: list[np.ndarray] = []
        self._values: list[Tensor] = []

    def act(self, observation: Any, memory: Memory, action_mask: Any = None) -> tuple[Any, Memory]:
        """Return (action, memory) of the next step, as `Policy.step` gives them."""
        policy = self._policy
        with torch.inference_mode():
            leaves = policy.leaves(observation)
            if self._at_once is not None:
                action, extras, memory = self._at_once(leaves, memory, action_mask, self._generator)
                self._log_probs.append(extras["log_prob"])
                if "value" in extras:
                    self._values.append(torch.from_numpy(extras["value"]))
                return action, memory
            if self._alone:
                output, memory = policy.network.act(leaves, memory)
            else:
                (output, value), memory = policy.network.step(leaves, memory)
                self._values.append(value)
            if action_mask is not None:
                output = policy.legal(output, action_mask)
            self._outputs.append(output)
            action = self._draw(output, self._generator)
            return policy.distribution.numpy(action), memory

    def extras(self, observations: Any, actions: Any) -> dict[str, np.ndarray]:
        """Return `ActionBatch.extras` of all steps, [T, N, ...], for `observations` and `actions` of that shape."""
        policy, extras = self._policy, {}
        with torch.inference_mode():
            if "log_prob" in self._names and self._log_probs:
                extras["log_prob"] = np.stack(self._log_probs)
            elif "log_prob" in self._names:
                output = map_tree(lambda *parts: torch.stack(parts), *self._outputs)
                action = map_tree(lambda part: torch.as_tensor(part, device=policy.device), actions)
                extras["log_prob"] = policy.distribution.log_prob(output, action).cpu().numpy()
            if "value" in self._names:
                known = self._values
                extras["value"] = torch.stack(known).cpu().numpy() if known else values(policy, observations)
        return extras


def values(policy: Policy, observations: Any) -> np.ndarray:
    """Return V float32 [T, N], or [T, N, channels], of observations [T, N, ...], for a policy without a memory."""
    with torch.inference_mode():
        leaves = policy.leaves(observations)
        steps, slots = (leaves if isinstance(leaves, Tensor) else next(iter(leaves.values()))).shape[:2]
        several = max(1, AT_ONCE // slots)
        parts = [
            policy.network.value(flatten_steps(take(leaves, slice(step, step + several))), {})
            for step in range(0, steps, several)
        ]
        flat = torch.cat(parts)
        return flat.view(steps, slots, *flat.shape[1:]).cpu().numpy()
