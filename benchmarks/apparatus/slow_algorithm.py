"""PPO slowed ten times, to show the effects of a learner that lags behind.

algorithm.name=benchmarks/apparatus/slow_algorithm.py:build; the settings are PPO's.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from agents.algorithms import Update
from agents.algorithms.ppo.algorithm import PPO
from agents.algorithms.ppo.config import PPOConfig
from agents.configuration import parse
from agents.policies import Policy
from agents.trajectories import Trajectory

TIMES = 10.0


class SlowPPO(PPO):
    """Each update takes ten times as long."""

    def update(self, trajectories: Sequence[Trajectory]) -> Update:
        """Make PPO's update, then wait nine times as long."""
        began = time.perf_counter()
        update = super().update(trajectories)
        time.sleep((TIMES - 1) * (time.perf_counter() - began))
        return update


def build(config: Mapping[str, Any], policy: Policy, seed: int) -> SlowPPO:
    return SlowPPO(policy, parse(PPOConfig, "ppo", config), seed)
