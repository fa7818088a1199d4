"""DDPG: Lillicrap et al. 2016, as settings of TD3."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agents.algorithms.ddpg.config import DDPGConfig
from agents.algorithms.registry import ALGORITHMS
from agents.algorithms.td3.algorithm import TD3
from agents.configuration import parse
from agents.policies import Policy


@ALGORITHMS.register("ddpg")
def build(config: Mapping[str, Any], policy: Policy, seed: int) -> TD3:
    return TD3(policy, parse(DDPGConfig, "ddpg", config), seed)
