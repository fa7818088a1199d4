"""Advantage actor-critic: one policy-gradient step on each batch of unrolls, which the learning weights sampled."""

from agents.algorithms.a2c.algorithm import A2C
from agents.algorithms.a2c.config import A2CConfig

__all__ = ["A2C", "A2CConfig"]
