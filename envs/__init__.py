"""Environments of any source behind one API, gymnasium's: `make`, `make_vector` and `spaces`."""

from envs.registry import make, make_vector, spaces
from envs.vector import VectorEnv

__all__ = ["VectorEnv", "make", "make_vector", "spaces"]
