"""Many copies of one environment as one vector: the contract (base), and the ways to step it.

Copies are stepped one after another in this process (sync), as arrays in C (classic_control) or by the library itself
(library), as a user's own vector (own), or in worker processes (workers, shared, envs/worker_process.py), each with
such a vector of its own.
"""

from envs.vector.base import Stepped, VectorEnv, WrongObservation

__all__ = ["Stepped", "VectorEnv", "WrongObservation"]
