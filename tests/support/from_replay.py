"""An algorithm with a replay: it moves the value of each first step towards its reward.

The module's `seen` keeps the input of each update of this process.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from agents import Batch, Needs, Policy, Update
from agents.trajectories import Trajectory

seen: list[tuple[Trajectory, np.ndarray | None, int]] = []  # the trajectory, its weights, and the steps of the clock


class FromReplay:
    """An algorithm whose update is one step of SGD on the squared error of the value."""

    def __init__(self, policy: Policy, source: str, length: int) -> None:
        self.policy, self.steps = policy, 0
        self.needs = Needs(fields=("cut.observation",), source=source, length=length)

    def update(self, batch: Batch) -> Update:
        """Make the step; return its loss, with the errors as priorities."""
        (trajectory,) = batch
        seen.append((trajectory, batch.weights, self.steps))
        first = self.policy.leaves(trajectory.observation[0])
        value = self.policy.evaluate(first, torch.as_tensor(trajectory.action[0])).value
        errors = value - torch.as_tensor(trajectory.reward[0])
        weights = torch.ones_like(errors) if batch.weights is None else torch.as_tensor(batch.weights)
        loss = (weights * errors**2).mean()
        self.policy.zero_grad()
        loss.backward()
        with torch.no_grad():
            for parameter in self.policy.parameters():
                if parameter.grad is not None:
                    parameter.sub_(parameter.grad, alpha=0.01)
        return Update({"value_loss": loss.item()}, errors.detach().abs().numpy())

    def behaviour(self) -> dict[str, float]:
        """Return {}."""
        return {}

    def adjust(self, changes: Mapping[str, Any]) -> None:
        """Ignore the changes."""

    def begin_at(self, steps: int) -> None:
        """Set the clock to `steps`."""
        self.steps = steps

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return nothing: there is no optimizer."""
        return {}, {}

    def load_state(self, tensors: Mapping[str, Tensor], scalars: Mapping[str, Any]) -> None:
        """Load nothing."""


def build(settings: Mapping[str, Any], policy: Policy, seed: int) -> FromReplay:
    """Return the algorithm with the settings `source` and `length`."""
    return FromReplay(policy, settings.get("source", "uniform"), int(settings.get("length", 1)))
