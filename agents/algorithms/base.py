"""Base of Warren's own algorithms: settings that may change, one clock for their schedules, and other learners."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor, nn

from agents.algorithms.contract import Needs
from agents.algorithms.numbers import not_finite
from agents.algorithms.optimizers import OptimizerConfig
from agents.algorithms.peers import ALONE, Peers
from agents.configuration import parse
from agents.operators.normalization import RunningMoments
from agents.policies import Policy
from warren.errors import ConfigurationError, NotFinite

C = TypeVar("C", bound=OptimizerConfig)


class ConfiguredAlgorithm(Generic[C]):
    """Trains `policy` in place; `seed` decides all random numbers of the algorithm itself."""

    needs = Needs()
    fixed: ClassVar[tuple[str, ...]] = ("optimizer", "burn_in")  # settings that `adjust` does not change

    def __init__(self, policy: Policy, config: C, seed: int) -> None:
        self.policy = policy
        self.config = config
        self.steps = 0  # environment steps that all learners have trained on; schedules follow it
        self.progress = 0.0  # the run's, in [0, 1]; schedules may follow it instead
        self.peers: Peers = ALONE
        self.generator = torch.Generator().manual_seed(seed)

    def behaviour(self) -> dict[str, float]:
        """Return {}: actors sample from the policy as it is."""
        return {}

    def adjust(self, changes: Mapping[str, Any]) -> None:
        """Change the settings in `changes`, as a population does with hyperparameters, and keep the others.

        Raises ConfigurationError for unknown names, for wrong values, and for new values of settings in `fixed`.
        """
        for name in self.fixed:
            has = getattr(self.config, name, None)
            if name in changes and hasattr(self.config, name) and changes[name] != has:
                raise ConfigurationError(
                    f"{name}={changes[name]} of {self.config.name} must stay {has} for the whole run"
                )
        if changes:
            self.config = parse(type(self.config), self.config.name, {**asdict(self.config), **changes})

    def begin_at(self, steps: int) -> None:
        """Set the schedules to where they stand after `steps` environment steps of all learners."""
        self.steps = steps

    def take_progress(self, progress: float) -> None:
        """Set the schedules that follow the run's progress to where they stand at `progress` in [0, 1]."""
        self.progress = progress

    def take_peers(self, peers: Peers) -> None:
        """Train together with `peers` from now on: the same weights, each learner on its share of every update."""
        self.peers = peers
        for part in self.policy.modules():
            if isinstance(part, RunningMoments):
                part.total = self.total

    @property
    def total(self) -> Callable[[Tensor], Tensor] | None:
        """Return the sum over all learners, for running moments; None where there is one learner."""
        return None if self.peers is ALONE else self.peers.total

    def not_finite(
        self, what: str, loss: Tensor, terms: Mapping[str, Tensor], inputs: Mapping[str, Tensor], model: nn.Module
    ) -> NotFinite:
        """Return the error of an update whose loss or gradient is not finite; `what`: the part of it that failed."""
        where = f"{self.config.name}, {what} of the update after {self.steps:,} environment steps"
        return not_finite(where, loss, terms, inputs, model)
