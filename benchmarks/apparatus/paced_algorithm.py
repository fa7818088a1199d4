"""An algorithm that computes nothing and takes a fixed time per update, so that all other costs show.

algorithm.name=benchmarks/apparatus/paced_algorithm.py:build; WARREN_BENCH_UPDATE in the environment: s of an update.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from agents.algorithms import Update
from agents.algorithms.gradient import GradientConfig
from agents.policies import Policy
from agents.trajectories import Trajectory
from benchmarks.apparatus.null_algorithm import Null

VARIABLE = "WARREN_BENCH_UPDATE"


class Paced(Null):
    """Waits in place of computing."""

    def update(self, trajectories: Sequence[Trajectory]) -> Update:
        """Leave the weights as they are."""
        time.sleep(float(os.environ.get(VARIABLE, "0.15")))
        return super().update(trajectories)


def build(config: Mapping[str, Any], policy: Policy, seed: int) -> Paced:
    return Paced(policy, GradientConfig(), seed)
