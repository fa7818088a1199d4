"""Where trajectories wait between their arrival and an update."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from agents import Trajectory, Update


@dataclass(frozen=True)
class Arrived:
    """A payload as an actor sent it, in which call of the learn task, and what of its trajectory is learned from."""

    call: int
    payload: Mapping[str, Any]
    trajectory: Trajectory


def collected_since(arrived: Sequence[Arrived]) -> tuple[float, float]:
    """(Unix time of the first environment step of those that made them, mean s since they were made)."""
    now = time.time()
    first = min(one.payload["first_step_at"] for one in arrived)
    return first, sum(now - one.payload["collected_at"] for one in arrived) / len(arrived)


@dataclass(frozen=True)
class UpdateData:
    """The data of one update. A source that draws says where each slot is from, and its weight.

    None does yet, and nothing reads `indices` and `weights`.
    """

    arrived: Sequence[Arrived]
    indices: np.ndarray | None = None  # int64 [slots]
    weights: np.ndarray | None = None  # float32 [slots]

    @property
    def trajectories(self) -> list[Trajectory]:
        """In the order of their arrival."""
        return [one.trajectory for one in self.arrived]


class DataSource(Protocol):
    """Keep what arrives until an update. After each arrival, `version` being that of the weights that learn:

    dropped = source.add(arrived, version)
    if source.ready():
        batch = source.sample()
        source.feedback(batch, algorithm.update(batch.trajectories))
    """

    def add(self, arrived: Arrived, version: int) -> int:
        """Keep it; the steps of it that were dropped, since the weights that made them are too old."""
        ...

    def ready(self) -> bool:
        """Whether there is enough for an update."""
        ...

    def sample(self) -> UpdateData:
        """What the next update is made on."""
        ...

    def feedback(self, batch: UpdateData, update: Update) -> None:
        """What became of a batch."""
        ...


class OnPolicyQueue:
    """All that has arrived since the last update, each used once; slots of weights over `max_staleness` old are cut."""

    def __init__(self, max_staleness: int) -> None:
        self._max_staleness = max_staleness
        self._waiting: list[Arrived] = []

    def add(self, arrived: Arrived, version: int) -> int:
        """See DataSource."""
        trajectory = arrived.trajectory
        young = trajectory.version >= version - self._max_staleness
        if not young.all():
            if not young.any():
                return trajectory.num_steps
            arrived = Arrived(arrived.call, arrived.payload, trajectory.slots(np.flatnonzero(young)))
        self._waiting.append(arrived)
        return trajectory.num_steps - arrived.trajectory.num_steps

    def ready(self) -> bool:
        """See DataSource."""
        return bool(self._waiting)

    def sample(self) -> UpdateData:
        """See DataSource."""
        batch, self._waiting = UpdateData(self._waiting), []
        return batch

    def feedback(self, batch: UpdateData, update: Update) -> None:
        """Nothing is drawn twice."""
