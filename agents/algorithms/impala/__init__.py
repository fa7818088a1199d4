"""IMPALA: one policy-gradient step on each batch of unrolls; V-trace corrects for older weights that acted."""

from agents.algorithms.impala.algorithm import IMPALA
from agents.algorithms.impala.config import IMPALAConfig

__all__ = ["IMPALA", "IMPALAConfig"]
