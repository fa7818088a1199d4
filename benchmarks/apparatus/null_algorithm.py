"""An idle algorithm, for the pipeline's own cost: algorithm.name=benchmarks/apparatus/null_algorithm.py:build."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agents.algorithms import Needs, Update
from agents.algorithms.gradient import GradientAlgorithm, GradientConfig
from agents.policies import Policy
from agents.trajectories import Trajectory


class Null(GradientAlgorithm[GradientConfig]):
    """Counts steps."""

    needs = Needs()

    def update(self, trajectories: Sequence[Trajectory]) -> Update:
        """Leave the weights as they are."""
        self.steps += sum(trajectory.num_steps for trajectory in trajectories)
        return Update({"policy_loss": 0.0})


def build(config: Mapping[str, Any], policy: Policy, seed: int) -> Null:
    return Null(policy, GradientConfig(), seed)
