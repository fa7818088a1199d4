"""DDPG: TD3 with one critic, a policy step in every update, and no smoothing of the target policy."""

from agents.algorithms.ddpg.algorithm import build
from agents.algorithms.ddpg.config import DDPGConfig

__all__ = ["DDPGConfig", "build"]
