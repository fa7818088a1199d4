"""Algorithms: from trajectories to better weights, a folder each. `ALGORITHMS` holds them by name."""

from agents.algorithms import a2c, appo, impala, ppo  # noqa: F401  (enter themselves)
from agents.algorithms.registry import ALGORITHMS, Algorithm, build_algorithm

__all__ = ["ALGORITHMS", "Algorithm", "build_algorithm"]
