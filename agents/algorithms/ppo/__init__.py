"""Proximal policy optimisation; `python -m workers.train algorithm=ppo`, and the first of Warren's algorithms."""

from agents.algorithms.ppo.algorithm import PPO
from agents.algorithms.ppo.config import PPOConfig

__all__ = ["PPO", "PPOConfig"]
