"""The unfinished trajectory of one group: T decisions of N environments that step together."""

from __future__ import annotations

import numpy as np

from agents.trajectories import Trajectory, TrajectorySpec, TrajectoryWriter
from warren.trees import Tree


class GroupTrajectory:
    """A trajectory filled by one decision and its outcome at a time; complete once the last outcome is known.

    It begins with the policy's `memory` before its first decision, {} if the policy has none.
    """

    def __init__(self, spec: TrajectorySpec, length: int, slots: int, memory: dict[str, np.ndarray]) -> None:
        self.length, self.slots = length, slots
        self.decided = 0  # decisions in it
        self._memory = memory
        self._writer = TrajectoryWriter(spec, length, slots)
        self._episodes = [np.zeros((0, 2 + spec.returns), np.float32)]

    @property
    def full(self) -> bool:
        """Return True once it has all its decisions."""
        return self.decided == self.length

    def decide(
        self, observation: Tree, action: Tree, extras: dict[str, np.ndarray], version: int, action_mask: Tree = None
    ) -> None:
        """Write the next decision, arrays [N, ...], by weights of `version`; the trajectory has the oldest."""
        if not self.decided:
            self._writer.start(slice(None), self._memory, version)
        np.minimum(self._writer.version, version, out=self._writer.version)
        self._writer.decide(self.decided, observation, action, extras, action_mask)
        self.decided += 1

    def follow(
        self,
        reward: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        cut: tuple[np.ndarray, dict[str, Tree]] | None,
        episodes: np.ndarray,
    ) -> None:
        """Write the outcome of the last decision, arrays [N].

        `cut`: slots int64 [K] that were cut off, and the arrays that TrajectoryWriter.cut_off takes for them;
        `episodes`: float32 [K, 2 + C], those that finished with this decision.
        """
        row = self.decided - 1
        self._writer.follow(row, reward, terminated, truncated)
        if cut is not None:
            self._writer.cut_off((row, cut[0]), cut[1])
        if len(episodes):
            self._episodes.append(episodes)

    def complete(self, observation: Tree, value: np.ndarray | None, action_mask: Tree = None) -> Trajectory:
        """Return the trajectory and hand over its arrays.

        `observation` [N, ...], with its `value` and `action_mask` if the spec asks for them, follows the last decision.
        """
        last = {"observation": observation, "value": value, "action_mask": action_mask}
        return self._writer.trajectory(last, np.concatenate(self._episodes))
