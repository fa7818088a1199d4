"""Many copies of one environment as one vector: the contract (base), and the ways to step it.

Copies are stepped one after another in this process (sync), as arrays in C (classic_control) or by the library itself
(library), or as a user's own vector (own). Or worker processes step them, each with such a vector of its own (workers,
shared, envs/worker_process.py).
"""

from envs.vector.base import Stepped, VectorEnv, WrongObservation

__all__ = ["Stepped", "VectorEnv", "WrongObservation"]
