"""Batch: the trajectories of an update, and the weights of those that a replay drew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import numpy as np

from agents.trajectories import Trajectory


class Batch(Sequence[Trajectory]):
    """The data of one update: all that arrived, or one Trajectory [T, N] of N drawn sequences.

    `weights` float32 [slots]: importance weights of a prioritized draw, one for each slot of the trajectories in their
    order, at most 1; None where all slots count alike.
    """

    __slots__ = ("_trajectories", "weights")

    def __init__(self, trajectories: Sequence[Trajectory], weights: np.ndarray | None = None) -> None:
        self._trajectories, self.weights = trajectories, weights

    def __len__(self) -> int:
        return len(self._trajectories)

    @overload
    def __getitem__(self, index: int) -> Trajectory: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Trajectory]: ...

    def __getitem__(self, index: int | slice) -> Trajectory | Sequence[Trajectory]:
        return self._trajectories[index]
