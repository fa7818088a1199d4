"""Storage of trajectories between their arrival and an update."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from agents import Batch, Trajectory, Update


@dataclass(frozen=True)
class Arrival:
    """A payload as an actor sent it, the index of its call of the learn task, and the trajectory to learn from."""

    call: int
    payload: Mapping[str, Any]
    trajectory: Trajectory


def collected_since(arrived: Sequence[Arrival]) -> tuple[float, float]:
    """Return (Unix time of the first environment step of the actors that made them, mean age in s)."""
    now = time.time()
    first = min(one.payload["first_step_at"] for one in arrived)
    return first, sum(now - one.payload["collected_at"] for one in arrived) / len(arrived)


@dataclass(frozen=True)
class UpdateData:
    """The data of one update: segments that `arrived` and are used once, or a batch that a replay drew."""

    batch: Batch
    arrived: Sequence[Arrival] = ()

    @classmethod
    def of(cls, arrived: Sequence[Arrival]) -> UpdateData:
        """Return the data of an update on all that arrived, in order."""
        return cls(Batch([one.trajectory for one in arrived]), arrived)


class DataSource(Protocol):
    """A store of arrivals until an update. After each arrival, with the `version` of the weights in training:

    dropped = source.add(arrived, version)
    if source.ready():
        data = source.sample()
        source.feedback(data, algorithm.update(data.batch))
    """

    def add(self, arrived: Arrival, version: int) -> int:
        """Keep an arrival; return how many of its steps were dropped because the weights that made them are too old."""
        ...

    def ready(self) -> bool:
        """Return whether there is enough for an update."""
        ...

    def sample(self) -> UpdateData:
        """Return the data of the next update."""
        ...

    def feedback(self, data: UpdateData, update: Update) -> None:
        """Take the results of an update on `data`, which was sampled last: its priorities, for the next samples."""
        ...


class OnPolicyQueue:
    """Arrivals since the last update, used once; slots whose weights are over `max_staleness` versions old are cut."""

    def __init__(self, max_staleness: int) -> None:
        self._max_staleness = max_staleness
        self._waiting: list[Arrival] = []

    def add(self, arrived: Arrival, version: int) -> int:
        """See DataSource."""
        trajectory = arrived.trajectory
        young = trajectory.version >= version - self._max_staleness
        if not young.all():
            if not young.any():
                return trajectory.num_steps
            arrived = Arrival(arrived.call, arrived.payload, trajectory.slots(np.flatnonzero(young)))
        self._waiting.append(arrived)
        return trajectory.num_steps - arrived.trajectory.num_steps

    def ready(self) -> bool:
        """See DataSource."""
        return bool(self._waiting)

    def sample(self) -> UpdateData:
        """See DataSource."""
        data, self._waiting = UpdateData.of(self._waiting), []
        return data

    def feedback(self, data: UpdateData, update: Update) -> None:
        """Do nothing: each trajectory is used once."""
