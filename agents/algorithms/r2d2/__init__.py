"""R2D2: Q-learning of a network with a memory, from stored sequences."""

from agents.algorithms.r2d2.algorithm import R2D2
from agents.algorithms.r2d2.config import R2D2Config

__all__ = ["R2D2", "R2D2Config"]
