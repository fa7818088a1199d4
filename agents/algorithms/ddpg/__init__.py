"""DDPG: TD3 with one critic, whose policy is stepped with each update and without smoothing."""

from agents.algorithms.ddpg.algorithm import build
from agents.algorithms.ddpg.config import DDPGConfig

__all__ = ["DDPGConfig", "build"]
