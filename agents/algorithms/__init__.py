"""Algorithms: from segments of experience to better weights. `ALGORITHMS` holds them by name."""

from agents.algorithms import ppo  # noqa: F401  (enters itself)
from agents.algorithms.registry import ALGORITHMS, Algorithm, build_algorithm

__all__ = ["ALGORITHMS", "Algorithm", "build_algorithm"]
