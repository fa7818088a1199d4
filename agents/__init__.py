"""The learning side: a pyramid of operators, networks, policies and algorithms; segments go in, weights come out."""

from agents.algorithms import Algorithm, build_algorithm
from agents.policies import Policy, build_policy
from agents.segments import Segment

__all__ = ["Algorithm", "Policy", "Segment", "build_algorithm", "build_policy"]
