"""Algorithms: from trajectories to better weights, a folder each. `ALGORITHMS` holds them by name."""

from agents.algorithms import a2c, appo, bc, ddpg, dqn, impala, ppo, qmix, r2d2, sac, td3  # noqa: F401  (enter themselves)
from agents.algorithms.batch import Batch
from agents.algorithms.contract import Algorithm, Needs, Update
from agents.algorithms.registry import ALGORITHMS, build_algorithm

__all__ = ["ALGORITHMS", "Algorithm", "Batch", "Needs", "Update", "build_algorithm"]
