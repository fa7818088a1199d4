"""Many copies of one environment as one vector: what it promises (base), and the ways to step it.

One after another in this process (sync), or by the form that the library itself vectorised (library).
"""

from envs.vector.base import Stepped, VectorEnv, WrongObservation

__all__ = ["Stepped", "VectorEnv", "WrongObservation"]
