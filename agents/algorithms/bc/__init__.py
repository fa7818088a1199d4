"""Behaviour cloning: the actions of recorded games become likely, or the distributions of a teacher."""

from agents.algorithms.bc.algorithm import BC, RETURN
from agents.algorithms.bc.config import BCConfig

__all__ = ["BC", "RETURN", "BCConfig"]
