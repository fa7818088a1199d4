"""Soft actor-critic: a policy that is rewarded for its entropy, of Box actions or of Discrete ones."""

from agents.algorithms.sac.algorithm import SAC
from agents.algorithms.sac.config import SACConfig

__all__ = ["SAC", "SACConfig"]
