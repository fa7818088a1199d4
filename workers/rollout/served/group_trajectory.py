"""One group of environments' trajectory in the making: T decisions of N environments that step together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from agents.trajectories import Trajectory, TrajectorySpec
from agents.trees import empty, zeros
from warren.trees import Tree, map_tree, put


class GroupTrajectory:
    """Filled a decision and its outcome at a time; complete when the outcome of the last decision is known.

    A trajectory begins with the policy's `memory` before its first decision, {} where it has none.
    """

    def __init__(self, spec: TrajectorySpec, length: int, slots: int, memory: dict[str, np.ndarray]) -> None:
        self.length, self.slots = length, slots
        self.decided = 0  # decisions in it
        self._spec, self._memory = spec, memory
        self._version = -1
        self._episodes: list[np.ndarray] = []
        shape = (length, slots)
        self._steps: dict[str, Tree] = {
            **{name: empty(getattr(spec, name), shape) for name in ("observation", "action", "extras", "reward")},
            "cut": zeros(spec.cut, shape),
            "terminated": np.empty(shape, np.bool_),
            "truncated": np.empty(shape, np.bool_),
        }

    @property
    def full(self) -> bool:
        """Whether it has all its decisions."""
        return self.decided == self.length

    def decide(self, observation: Tree, action: Tree, extras: dict[str, np.ndarray], version: int) -> None:
        """The next decision, arrays [N, ...], by weights of `version`; a trajectory carries the oldest."""
        decision = {"observation": observation, "action": action, "extras": extras}
        for name, values in decision.items():
            put(self._steps[name], self.decided, values)
        self._version = min(self._version, version) if self.decided else version
        self.decided += 1

    def come_of(
        self,
        reward: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        cut: tuple[np.ndarray, np.ndarray] | None,
        episodes: np.ndarray,
    ) -> None:
        """What came of the decision made last: [N] each; `cut`: slots int64 [K] and values [K] of what was cut off.

        `episodes`: float32 [K, 2 + C], those that finished with it.
        """
        row, steps = self.decided - 1, self._steps
        steps["reward"][row], steps["terminated"][row], steps["truncated"][row] = reward, terminated, truncated
        if cut is not None:
            steps["cut"]["value"][row, cut[0]] = cut[1]
        if len(episodes):
            self._episodes.append(episodes)

    def complete(self, observation: Tree, value: np.ndarray | None) -> Trajectory:
        """The trajectory, followed by `observation` [N, ...] of this `value`, which the spec may not ask for.

        Its arrays are handed over.
        """
        last = map_tree(
            lambda spec, part: np.asarray(part, spec.dtype),
            self._spec.last,
            {"observation": observation, "value": value},
        )
        return Trajectory(
            **self._steps,
            last=last,
            memory=self._memory,
            version=np.full(self.slots, self._version, np.int64),
            episodes=_joined(self._episodes, 2 + self._spec.returns),
        )


def _joined(episodes: Sequence[np.ndarray], columns: int) -> np.ndarray[Any, Any]:
    return np.concatenate([np.zeros((0, columns), np.float32), *episodes])
