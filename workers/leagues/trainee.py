"""A learning player of a league in one process, and the updates that such players are due."""

from __future__ import annotations

from dataclasses import dataclass, field

from agents import Algorithm, Batch
from agents.algorithms.together import update_together
from agents.checkpoints import load_weights
from agents.policies import Policy
from agents.trajectories import Trajectory
from agents.weight_averages import WeightAverages
from workers.config.league import TOGETHER
from workers.rollout.games.match_scheduler import Matches
from workers.rollout.games.selfplay_sampler import MatchSampler


@dataclass
class Trainee:
    """A learning player with its games."""

    name: str
    policy: Policy  # acts; `algorithm.policy` learns, which on another device is a copy
    algorithm: Algorithm
    sampler: MatchSampler
    matches: Matches = field(init=False)
    steps: int = 0  # decisions since it joined the league, including those that it has yet to learn from
    version: int = 0
    period_end: int = 0  # steps at which its learning period ends
    schedules_from: int = 0  # steps at which its schedules began: those of its last reset
    averages: WeightAverages = field(default_factory=lambda: WeightAverages(()))


class DueUpdates:
    """Updates for which players have played. All are made once the weights of one of these players are needed.

    So every player sees the others' weights as if each update had been made at once.
    """

    def __init__(self, updating: str) -> None:
        """Take `updating`: whether they are made together, or each by its own `Algorithm.update`."""
        self._together = updating == TOGETHER
        self._due: dict[str, tuple[Trainee, Trajectory]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._due

    def add(self, trainee: Trainee, trajectory: Trajectory) -> None:
        """Add the trajectory that a player is to learn from; its last update has been made."""
        self._due[trainee.name] = trainee, trajectory

    def make(self) -> dict[str, dict[str, float]]:
        """Make the updates; return their metrics by player."""
        due, self._due = list(self._due.values()), {}
        algorithms, batches = [trainee.algorithm for trainee, _ in due], [Batch([trajectory]) for _, trajectory in due]
        if self._together:
            updates = update_together(algorithms, batches)
        else:
            updates = [algorithm.update(batch) for algorithm, batch in zip(algorithms, batches, strict=True)]
        for trainee, _ in due:
            if (learned := trainee.algorithm.policy) is not trainee.policy:
                load_weights(trainee.policy, learned.state_dict())
            trainee.averages.add(trainee.policy)
            trainee.version += 1
            trainee.matches.load(trainee.policy.state_dict(), trainee.version, trainee.algorithm.behaviour())
        return {trainee.name: update.metrics for (trainee, _), update in zip(due, updates, strict=True)}
