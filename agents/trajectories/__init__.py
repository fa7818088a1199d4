"""Trajectories: what samplers write, actors send and algorithms learn from."""

from agents.trajectories.specs import CUT_OBSERVATION, ON_REQUEST, TrajectorySpec, drawn, on_policy, requested
from agents.trajectories.trajectory import Trajectory, concatenate
from agents.trajectories.writer import TrajectoryWriter

__all__ = [
    "CUT_OBSERVATION",
    "ON_REQUEST",
    "Trajectory",
    "TrajectorySpec",
    "TrajectoryWriter",
    "concatenate",
    "drawn",
    "on_policy",
    "requested",
]
