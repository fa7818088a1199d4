"""Trajectory: T steps of N slots, as samplers collect them, actors send them and algorithms learn from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from agents.trajectories.checks import CUTS, mismatches, wrong_numbers
from agents.trajectories.cuts import Cuts, cuts_of_slots, joined_cuts
from agents.trajectories.specs import OF_SLOTS, TrajectorySpec
from warren.errors import WireError
from warren.trees import Tree, map_tree

STEP, SLOT = 1, 0  # the axis of slots: fields of steps are [T, N, ...], those of slots [N, ...]
OPTIONAL = {"memory", "action_mask", "valid", "group", *CUTS}  # fields that a trajectory need not have


@dataclass(slots=True)
class Trajectory:
    """T steps of N slots (environments, or seats of games), time-major; observations and actions may be trees.

    Where an episode ends at step t, `observation[t + 1]` already belongs to the next one. An episode that ran out of
    time (truncated) goes on in principle, so `cut` keeps the policy's numbers for the observation that was cut off.
    Where an algorithm names "cut.observation", `cut_observation` keeps that observation itself; then `last` and the
    cuts also hold the legal actions there, unless all always are.

    In a game in turns the steps of a slot are one player's own decisions in one seat of one game after another. Its
    reward at a step is all that it got until its next decision. An episode ends at its last decision of a game.
    """

    observation: Tree  # [T, N, ...] in the environment's dtype (float64 becomes float32)
    action: Tree  # [T, N, ...]: int64, or float32 before it is clipped; leaf name -> that of a Dict or Tuple
    reward: np.ndarray  # float32 [T, N], or [T, N, C] with a column per reward channel
    terminated: np.ndarray  # bool [T, N]
    truncated: np.ndarray  # bool [T, N]
    # The policy's own numbers are there where the algorithm asks for them (ON_REQUEST):
    extras: dict[str, np.ndarray]  # [T, N, ...] at each step, by the policy that acted: "log_prob", "value"
    last: dict[str, Tree]  # [N, ...] at the moment after step T - 1: "observation", "value", "action_mask"
    cut: dict[str, np.ndarray]  # [T, N, ...] at an episode's last observation where truncated, else 0: "value"
    version: np.ndarray  # int64 [N]: version of the weights that acted; the oldest where several did
    episodes: np.ndarray  # float32 [K, 2 + C]: return, length and channels' returns of episodes that finished within
    memory: dict[str, np.ndarray] = field(default_factory=dict)  # [N, ...]: the policy's before step 0, if it has one
    action_mask: Tree | None = None  # bool [T, N, A]: which actions were legal (Policy.step); None where all always are
    cut_at: np.ndarray | None = None  # int64 [K, 2]: step and slot of all that is truncated alone, ascending
    cut_observation: Tree | None = None  # [K, ...]: the observations there
    cut_action_mask: Tree | None = None  # bool [K, A]: which actions are legal there; None where all always are
    # For agents that learn together; None where every slot decides at every step, and is on its own. A step that is not
    # valid held no decision: it has terminated, its reward is 0, and nothing is learned from it.
    valid: np.ndarray | None = None  # bool [T, N]
    group: np.ndarray | None = None  # int64 [N]: slots of one game have one number

    @property
    def num_steps(self) -> int:
        """T * N, or those of them that are valid."""
        return self.terminated.size if self.valid is None else int(self.valid.sum())

    @property
    def num_slots(self) -> int:
        """N."""
        return int(self.terminated.shape[1])

    @property
    def cuts(self) -> Cuts | None:
        """Return (where episodes were cut off, what is kept there by name); None where cuts are not kept."""
        if self.cut_at is None:
            return None
        masks = {} if self.cut_action_mask is None else {"action_mask": self.cut_action_mask}
        return self.cut_at, {"observation": self.cut_observation, **masks}

    @cuts.setter
    def cuts(self, cuts: Cuts) -> None:
        self.cut_at, kept = cuts
        self.cut_observation, self.cut_action_mask = kept["observation"], kept.get("action_mask")

    def to_dict(self) -> dict[str, Any]:
        """Return field name -> arrays, without a field that is None; the arrays are not copied."""
        return {each.name: value for each in fields(self) if (value := getattr(self, each.name)) is not None}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], spec: TrajectorySpec | None = None) -> Trajectory:
        """Return the trajectory that `to_dict` made `data` from.

        Raises WireError, which names every wrong field: one that does not fit the others, or, with a `spec`, the run.
        """
        known = {each.name for each in fields(cls)}
        wrong = [f"trajectory has no field {name!r}" for name in sorted(known - OPTIONAL - set(data))]
        wrong += [f"trajectory has an unknown field {name!r}" for name in sorted(map(str, set(data) - known))]
        wrong = wrong or list(mismatches(data, spec)) or list(wrong_numbers(data, spec))
        if wrong:
            raise WireError("; ".join(wrong))
        return cls(**data)

    def slots(self, which: slice | np.ndarray) -> Trajectory:
        """Return some of its slots (a slice, or int [K]), with all of its `episodes`, which belong to no slot."""

        def part(name: str, value: Any) -> Any:
            if name == "episodes" or value is None:
                return value
            axis = SLOT if name in OF_SLOTS else STEP
            return map_tree(lambda leaf: leaf[which] if axis == SLOT else leaf[:, which], value)

        of_steps = (each.name for each in fields(self) if each.name not in CUTS)
        chosen = Trajectory(**{name: part(name, getattr(self, name)) for name in of_steps})
        if (cuts := self.cuts) is not None:
            chosen.cuts = cuts_of_slots(cuts, which, self.num_slots)
        return chosen


def concatenate(trajectories: Sequence[Trajectory]) -> Trajectory:
    """Return one trajectory with the slots of all, along N. Raises ValueError where their T differ."""
    lengths = {len(trajectory.terminated) for trajectory in trajectories}
    if len(lengths) != 1:
        raise ValueError(f"trajectories of different lengths T cannot be joined along N: {sorted(lengths)}")
    if len(trajectories) == 1:
        return trajectories[0]
    for name in sorted(OPTIONAL - {"memory"}):
        if len({getattr(trajectory, name) is None for trajectory in trajectories}) != 1:
            raise ValueError(f"trajectories with and without {name} cannot be joined")

    def joined(name: str) -> Any:
        values = [getattr(trajectory, name) for trajectory in trajectories]
        if values[0] is None:
            return None
        if name == "group":
            firsts = np.cumsum([0, *(group.max() + 1 for group in values[:-1])])
            values = [group + first for group, first in zip(values, firsts, strict=True)]
        axis = SLOT if name in OF_SLOTS or name == "episodes" else STEP
        return map_tree(lambda *parts: np.concatenate(parts, axis=axis), *values)

    whole = Trajectory(**{each.name: joined(each.name) for each in fields(Trajectory) if each.name not in CUTS})
    parts = [cuts for one in trajectories if (cuts := one.cuts) is not None]
    if parts:
        whole.cuts = joined_cuts(parts, [one.num_slots for one in trajectories])
    return whole
