"""Each rank's share of the data of an update, and the sum of all shares, which every rank computes alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agents.trajectories import Trajectory
from warren.errors import WarrenError
from workers.learning.allreduce.ranks import Ranks
from workers.learning.data_source import Arrival, collected_since


class RanksDiffer(WarrenError):
    """Raised when learners that train together do not have the same weights, so that training cannot go on."""


@dataclass(frozen=True)
class Share:
    """Figures of an update's data. `version`: of the weights in training; times in s, `episodes` [K, 2 + channels].

    `seconds`: of training before the update; of several learners the most.
    """

    steps: int
    first_step_at: float
    data_age: float
    staleness: float
    version: int
    episodes: np.ndarray
    seconds: float = 0.0

    @classmethod
    def of(
        cls, arrived: Sequence[Arrival], trajectories: Sequence[Trajectory], version: int, seconds: float = 0.0
    ) -> Share:
        """Return the share of this learner, from what has arrived here."""
        first, age = collected_since(arrived)
        return cls(
            sum(t.num_steps for t in trajectories),
            first,
            age,
            version - float(np.concatenate([t.version for t in trajectories]).mean()),
            version,
            np.concatenate([t.episodes for t in trajectories]),
            seconds,
        )

    @classmethod
    def of_all(cls, ranks: Ranks, own: Share, fingerprint: int) -> Share:
        """Wait until each rank has a share; return the sum of all. `fingerprint`: of the weights, below 2^53.

        Raises RanksDiffer, RanksChanged and Stopping.
        """
        figures = (own.steps, own.first_step_at, own.data_age, own.staleness, own.version, own.seconds, fingerprint)
        found, episodes = ranks.enter(figures, own.episodes)
        steps, first, age, staleness, version, seconds, fingerprints = zip(*found, strict=True)
        differing = [rank for rank, one in enumerate(fingerprints) if one != fingerprints[0]]
        if differing:
            raise RanksDiffer(
                f"at version {int(max(version))} the weights of rank {', '.join(map(str, differing))} are not those "
                f"of rank 0 (this is rank {ranks.rank} of {ranks.size}); an algorithm that changes its weights by more "
                "than gradients and totals of its peers cannot be trained by several learners"
            )
        of_steps = np.array(steps) / sum(steps)
        return cls(
            int(sum(steps)),
            min(first),
            float(np.dot(of_steps, age)),
            float(np.dot(of_steps, staleness)),
            int(max(version)),
            np.concatenate(episodes),
            max(seconds),
        )
