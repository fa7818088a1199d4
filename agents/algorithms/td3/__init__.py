"""Deterministic policy gradients: TD3, and DDPG as settings of it."""

from agents.algorithms.td3.algorithm import TD3
from agents.algorithms.td3.config import TD3Config

__all__ = ["TD3", "TD3Config"]
