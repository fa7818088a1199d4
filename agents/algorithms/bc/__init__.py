"""Behaviour cloning: make the actions of recorded games likely, or imitate the distributions of a teacher."""

from agents.algorithms.bc.algorithm import BC, RETURN
from agents.algorithms.bc.config import BCConfig

__all__ = ["BC", "RETURN", "BCConfig"]
