"""The learning side, a pyramid of operators, networks, policies and algorithms: trajectories in, weights out."""

from agents.algorithms import Algorithm, Batch, Needs, Update, build_algorithm
from agents.policies import Policy, build_policy
from agents.trajectories import Trajectory

__all__ = ["Algorithm", "Batch", "Needs", "Policy", "Trajectory", "Update", "build_algorithm", "build_policy"]
