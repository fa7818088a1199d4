"""Many copies of one environment as one vector: what it promises (base), and the ways to step it.

One after another in this process (sync), by the form that the library itself vectorised (library), or in worker
processes (workers, worker, shared), each of which has such a vector of its own.
"""

from envs.vector.base import Stepped, VectorEnv, WrongObservation

__all__ = ["Stepped", "VectorEnv", "WrongObservation"]
