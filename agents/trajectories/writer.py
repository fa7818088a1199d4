"""TrajectoryWriter: the arrays of a trajectory while a sampler fills them.

    writer = TrajectoryWriter(spec, length, slots)
    writer.start(slice(None), memory, version)
    for step in range(length):
        writer.decide(step, observation, action, extras)
        writer.follow(step, reward, terminated, truncated)
    trajectory = writer.trajectory({"observation": observation, "value": value}, episodes)

`at` is where to write: a step of all slots, as above, or (steps, slots), as numpy indexes the first two axes: samplers
whose slots do not decide together write each slot's next step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from agents.trajectories.cuts import cuts_of_slots, gather
from agents.trajectories.specs import TrajectorySpec
from agents.trajectories.trajectory import Trajectory
from agents.trees import cast, empty, zeros
from warren.trees import Tree, put, take


class TrajectoryWriter:
    """T steps of N slots, in arrays named as Trajectory's fields; each may be written again before it is handed out."""

    __slots__ = (
        "_cuts", "_spec", "action", "action_mask", "cut", "extras", "memory", "observation", "reward", "terminated",
        "truncated", "version",
    )  # fmt: skip

    def __init__(self, spec: TrajectorySpec, length: int, slots: int) -> None:
        """Allocate `length` steps of `slots` slots; no episode ends, and none is cut off, until it is written."""
        shape = (length, slots)
        self._spec = spec
        self.observation, self.action = empty(spec.observation, shape), empty(spec.action, shape)
        self.action_mask = None if spec.action_mask is None else empty(spec.action_mask, shape)
        self.extras = empty(spec.extras, shape)
        self.reward = empty(spec.reward, shape)
        self.terminated, self.truncated = np.zeros(shape, np.bool_), np.zeros(shape, np.bool_)
        self.cut = zeros(spec.cut, shape)
        self._cuts: list[tuple[int, int, Tree]] = []  # step, slot and what is kept of those that were cut off
        self.memory, self.version = zeros(spec.memory, (slots,)), np.zeros(slots, np.int64)

    def start(self, slots: Any, memory: dict[str, np.ndarray], version: int) -> None:
        """Write the policy's `memory` [K, ...] before the first step of these slots, and the `version` that acts."""
        put(self.memory, slots, memory)
        self.version[slots] = version
        if self._cuts:
            anew = set(np.atleast_1d(np.arange(len(self.version))[slots]).tolist())
            self._cuts = [cut for cut in self._cuts if cut[1] not in anew]

    def decide(
        self,
        at: Any,
        observation: Tree,
        action: Tree,
        extras: dict[str, np.ndarray] | None = None,
        action_mask: Tree | None = None,
    ) -> None:
        """Write decisions; `extras` None where the sampler sets those of all steps at the end."""
        put(self.observation, at, observation)
        put(self.action, at, action)
        if extras is not None:
            put(self.extras, at, extras)
        if self.action_mask is not None:
            put(self.action_mask, at, action_mask)

    def follow(self, at: Any, reward: Any, terminated: Any = False, truncated: Any = False) -> None:
        """Write what followed the decisions."""
        self.reward[at], self.terminated[at], self.truncated[at] = reward, terminated, truncated

    def cut_off(self, at: Any, cut: Mapping[str, Any]) -> None:
        """Write what is kept of the observations at which truncated episodes were cut off.

        `cut`: the parts that `spec.cut` and `spec.kept_at_cuts` name; without an action mask all is legal.
        """
        put(self.cut, at, cut)
        names = self._spec.kept_at_cuts
        if not names:
            return
        step, slots = at
        kept = {name: cut[name] for name in names if cut.get(name) is not None}
        if np.ndim(slots) == 0:
            self._cuts.append((int(step), int(slots), kept))
            return
        for index, slot in enumerate(slots):
            self._cuts.append((int(step), int(slot), take(kept, index)))

    def trajectory(
        self, last: dict[str, Tree], episodes: np.ndarray | None = None, slots: np.ndarray | None = None
    ) -> Trajectory:
        """Return what was written in `slots` int64 [K], as copies, or in all, handing the arrays over.

        `last` [K, ...]: at least the parts that `spec.last` names, of the moment after the last step; `episodes`: those
        that finished within, none unless given.
        """
        steps = {name: getattr(self, name) for name in ("observation", "action", "extras", "cut")}
        steps |= {name: getattr(self, name) for name in ("reward", "terminated", "truncated")}
        if self.action_mask is not None:
            steps["action_mask"] = self.action_mask
        first = {"memory": self.memory, "version": self.version}
        kept = gather(self._spec.kept_at_cuts, self._cuts) if self._spec.kept_at_cuts else None
        if slots is not None:
            steps, first = take(steps, (slice(None), slots)), take(first, slots)
            kept = None if kept is None else cuts_of_slots(kept, slots, len(self.version))
        if episodes is None:
            episodes = np.zeros((0, 2 + self._spec.returns), np.float32)
        last = cast(self._spec.last, last)
        trajectory = Trajectory(**steps, **first, last=last, episodes=episodes)
        if kept is not None:
            trajectory.cuts = kept
        return trajectory
