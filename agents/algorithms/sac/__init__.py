"""Soft actor-critic: a policy that is rewarded for its entropy, over Box or Discrete actions."""

from agents.algorithms.sac.algorithm import SAC
from agents.algorithms.sac.config import SACConfig

__all__ = ["SAC", "SACConfig"]
