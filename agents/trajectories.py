"""Trajectory: T steps of N slots, as samplers collect them, actors send them and algorithms learn from them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from math import prod
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from agents.spaces import SpaceTree
from agents.trees import ArraySpec, Spec, not_finite, problems, spec_of
from warren.errors import WireError
from warren.trees import Tree, leaves, map_tree

STEP, SLOT = 1, 0  # along which axis slots lie: fields of steps are [T, N, ...], those of slots [N, ...]


@dataclass(slots=True)
class Trajectory:
    """T steps of N slots (environments, or seats of games), time-major; observations and actions may be trees.

    Where an episode ends at step t, `observation[t + 1]` already belongs to the next one. An episode that ran out of
    time (truncated) goes on in principle, so `cut` keeps what the policy said of the observation that was cut off.

    In a game in turns the steps of a slot are one player's own decisions in one seat of one game after another; its
    reward at a step is all that it got until its next decision, and an episode ends at its last decision of a game.
    """

    observation: Tree  # [T, N, ...] in the environment's dtype (float64 becomes float32)
    action: Tree  # [T, N, ...]: int64, or float32 before it is clipped; leaf name -> that of a Dict or Tuple
    reward: np.ndarray  # float32 [T, N], or [T, N, C] with a column a reward channel
    terminated: np.ndarray  # bool [T, N]
    truncated: np.ndarray  # bool [T, N]
    # What a policy says is there where the algorithm asks for it (ON_REQUEST):
    extras: dict[str, np.ndarray]  # [T, N, ...]: of each step, by the policy that acted: "log_prob", "value"
    last: dict[str, Tree]  # [N, ...] of the moment after step T - 1: "observation", "value"
    cut: dict[str, np.ndarray]  # [T, N, ...] of an episode's last observation where truncated, else 0: "value"
    version: np.ndarray  # int64 [N]: of the weights that acted; the oldest where several did
    episodes: np.ndarray  # float32 [K, 2 + C]: return, length and channels' returns of episodes that finished within
    memory: dict[str, np.ndarray] = field(default_factory=dict)  # [N, ...]: the policy's before step 0, if it has one
    action_mask: Tree | None = None  # bool [T, N, A]: which actions were legal; None where all always are

    @property
    def num_steps(self) -> int:
        """Steps within: T * N."""
        return self.terminated.size

    @property
    def num_slots(self) -> int:
        """N."""
        return int(self.terminated.shape[1])

    def to_dict(self) -> dict[str, Any]:
        """Field name -> arrays, without a field that is None; the arrays are not copied."""
        return {each.name: value for each in fields(self) if (value := getattr(self, each.name)) is not None}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], spec: TrajectorySpec | None = None) -> Trajectory:
        """The trajectory that `to_dict` made `data` from.

        Raises WireError, which names every wrong field: one that does not fit the others, or, with a `spec`, the run.
        """
        known = {each.name for each in fields(cls)}
        wrong = [f"trajectory has no field {name!r}" for name in sorted(known - OPTIONAL - set(data))]
        wrong += [f"trajectory has an unknown field {name!r}" for name in sorted(map(str, set(data) - known))]
        wrong = wrong or list(_wrong(data, spec)) or list(_wrong_numbers(data))
        if wrong:
            raise WireError("; ".join(wrong))
        return cls(**data)

    def slots(self, which: slice | np.ndarray) -> Trajectory:
        """Some of its slots; all of its `episodes`, which are of no slot in particular."""

        def part(name: str, value: Any) -> Any:
            if name == "episodes" or value is None:
                return value
            axis = SLOT if name in OF_SLOTS else STEP
            return map_tree(lambda leaf: leaf[which] if axis == SLOT else leaf[:, which], value)

        return Trajectory(**{each.name: part(each.name, getattr(self, each.name)) for each in fields(self)})


DTYPES = {"action": ["int64", "float32"], "reward": ["float32"], "action_mask": ["bool"]}
NUMBERS = {np.dtype(code).name for code in "?bBhHiIlLefd"}
OPTIONAL = {"memory", "action_mask"}  # fields that a trajectory need not have
OF_SLOTS = {"last", "version", "memory"}  # [N, ...]; all others but `episodes` are [T, N, ...]
# What samplers collect where an algorithm asks for it (agents.Needs); all else they always do.
ON_REQUEST = ("extras.log_prob", "extras.value", "last.value", "cut.value")


def requested(fields: Collection[str] | None) -> list[str]:
    """Return those of ON_REQUEST that `fields` of an algorithm's Needs name; all for None."""
    return [name for name in ON_REQUEST if fields is None or name in fields]


REWARD = ArraySpec((), "float32")  # one channel


@dataclass(frozen=True)
class TrajectorySpec:
    """What one run's trajectories hold: of each field the shape and dtype of one step, or of one slot."""

    observation: Spec
    action: Spec
    extras: dict[str, ArraySpec]
    last: dict[str, Spec]
    cut: dict[str, ArraySpec]
    memory: dict[str, ArraySpec] = field(default_factory=dict)
    action_mask: Spec | None = None
    reward: ArraySpec = REWARD
    returns: int = 0  # columns of `episodes` after the first two
    privileged: tuple[str, ...] = ()  # keys of the observation that the value saw, and the actions do not follow from

    @property
    def values_steps(self) -> bool:
        """Return True where each step needs the policy's value: to keep it, as that of the moment after the last step,
        or because it has a memory, which goes on from step to step."""
        return "value" in self.extras or "value" in self.last or bool(self.memory)

    def problems(self, data: Mapping[str, Any]) -> list[str]:
        """Where the fields of a trajectory are not as this says."""
        steps, slots = data["terminated"].shape
        found: list[str] = []
        if (self.action_mask is None) != (data.get("action_mask") is None):
            has = "has no" if data.get("action_mask") is None else "has an"
            found.append(f"trajectory {has} action_mask, which is not as the run's environment declares it")
        for name in ("observation", "action", "extras", "last", "cut", "memory", "action_mask", "reward"):
            spec, value = getattr(self, name), data.get(name, {} if name == "memory" else None)
            if spec is not None and value is not None:
                leading = (slots,) if name in OF_SLOTS else (steps, slots)
                found += problems(spec, value, leading, f"trajectory field {name}")
        return found


def on_policy(
    observation_space: gymnasium.Space[Any],
    action_space: gymnasium.Space[Any],
    legal_actions: bool = False,
    memory: Mapping[str, tuple[int, ...]] | None = None,
    channels: int = 0,
    returns: int = 0,
    privileged: tuple[str, ...] = (),
    fields: Collection[str] | None = None,
) -> TrajectorySpec:
    """Return what samplers collect for algorithms that learn from what the policy that acted did.

    `legal_actions`: whether each step has an action_mask; `memory`: name -> shape of a slot's part of it; `channels` of
    the reward that have a value each, 0 for one reward; `returns` of channels in `episodes`; `privileged` keys of the
    observation; `fields` as of Needs: of ON_REQUEST those that they name, all for None. Raises ConfigurationError for
    spaces without a Spec.
    """
    number = ArraySpec((), "float32")
    value = ArraySpec((channels,), "float32") if channels else number
    wanted = requested(fields)

    def asked(group: str, **parts: ArraySpec) -> dict[str, ArraySpec]:
        return {name: part for name, part in parts.items() if f"{group}.{name}" in wanted}

    return TrajectorySpec(
        observation=spec_of(observation_space),
        action=drawn(action_space),
        extras=asked("extras", log_prob=number, value=value),
        last={"observation": spec_of(observation_space), **asked("last", value=value)},
        cut=asked("cut", value=value),
        reward=value,
        returns=returns,
        privileged=privileged,
        memory={name: ArraySpec(tuple(shape), "float32") for name, shape in (memory or {}).items()},
        action_mask=ArraySpec((int(action_space.n),), "bool")
        if legal_actions and isinstance(action_space, spaces.Discrete)
        else None,
    )


def drawn(action_space: gymnasium.Space[Any]) -> Spec:
    """Actions as policies draw them and samplers keep them; of a Dict or Tuple, leaf name -> that of the leaf.

    Policies count from 0, wherever a space begins, and put several choices or numbers into one row.
    """
    tree = SpaceTree(action_space, "action")
    parts: dict[str, ArraySpec] = {}
    for name, leaf in tree.leaves.items():
        if isinstance(leaf, spaces.Discrete):
            parts[name] = ArraySpec((), "int64", int(leaf.n))
        else:
            parts[name] = ArraySpec((prod(leaf.shape or ()),), "float32" if isinstance(leaf, spaces.Box) else "int64")
    return parts[""] if tree.bare else parts


def concatenate(trajectories: Sequence[Trajectory]) -> Trajectory:
    """One trajectory with the slots of all, along N; their T must agree. Raises ValueError where it does not."""
    lengths = {len(trajectory.terminated) for trajectory in trajectories}
    if len(lengths) != 1:
        raise ValueError(f"trajectories of different lengths T cannot be joined along N: {sorted(lengths)}")
    if len(trajectories) == 1:
        return trajectories[0]
    if len({trajectory.action_mask is None for trajectory in trajectories}) != 1:
        raise ValueError("trajectories with and without an action_mask cannot be joined")

    def joined(name: str) -> Any:
        values = [getattr(trajectory, name) for trajectory in trajectories]
        if values[0] is None:
            return None
        axis = SLOT if name in OF_SLOTS or name == "episodes" else STEP
        return map_tree(lambda *parts: np.concatenate(parts, axis=axis), *values)

    return Trajectory(**{each.name: joined(each.name) for each in fields(Trajectory)})


def _wrong(data: Mapping[str, Any], spec: TrajectorySpec | None) -> Iterator[str]:
    """Fields that do not fit each other, or the run."""
    done = data["terminated"]
    if not isinstance(done, np.ndarray) or done.dtype != np.bool_ or done.ndim != 2 or 0 in done.shape:
        found = f"{done.dtype} {list(done.shape)}" if isinstance(done, np.ndarray) else type(done).__name__
        yield f"trajectory field terminated must be bool [T, N] with T, N >= 1, is {found}"
        return
    steps, slots = done.shape
    yield from problems(ArraySpec((), "bool"), data["truncated"], (steps, slots), "trajectory field truncated")
    yield from problems(ArraySpec((), "int64"), data["version"], (slots,), "trajectory field version")
    episodes = data["episodes"]
    if not isinstance(episodes, np.ndarray) or episodes.dtype != np.float32 or episodes.ndim != 2:
        yield "trajectory field episodes must be float32 [K, 2 or more]"
    elif episodes.shape[1] < 2 or (spec is not None and episodes.shape[1] != 2 + spec.returns):
        wanted = "2 or more" if spec is None else 2 + spec.returns
        yield f"trajectory field episodes must be float32 [K, {wanted}], is {list(episodes.shape)}"
    if spec is not None:
        yield from spec.problems(data)
        return
    for name in ("observation", "action", "reward", "extras", "cut", "action_mask", "last", "memory"):
        leading = (slots,) if name in OF_SLOTS else (steps, slots)
        for path, leaf in leaves(data.get(name, ()) if data.get(name) is not None else ()):
            where = f"trajectory field {name}.{path}" if path else f"trajectory field {name}"
            if not isinstance(leaf, np.ndarray):
                yield f"{where} must be an array, is {type(leaf).__name__}"
            elif leaf.dtype.name not in DTYPES.get(name, NUMBERS):
                yield f"{where} must be {' or '.join(DTYPES.get(name, ['numeric']))}, is {leaf.dtype}"
            elif leaf.shape[: len(leading)] != leading:
                yield f"{where} must be {[*leading, '...']}, is {list(leaf.shape)}"


def _wrong_numbers(data: Mapping[str, Any]) -> Iterator[str]:
    # One nan from one environment would make every weight nan, and the learner would publish them.
    for name, value in data.items():
        if value is not None:
            yield from not_finite(value, f"trajectory field {name}")
    # The log-probability of an action outside its mask is -1e8: one such step would drown a whole batch.
    masks, actions = data.get("action_mask"), data["action"]
    if masks is not None:
        pairs = [((), masks, actions)] if isinstance(masks, np.ndarray) else _pairs(masks, actions)
        for path, mask, action in pairs:
            yield from _illegal(".".join(map(str, path)), mask, action)


def _pairs(masks: Tree, actions: Tree, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any, Any]]:
    """(path, mask, action) of each part of an action that has a mask."""
    items = masks.items() if isinstance(masks, dict) else enumerate(masks)
    for name, mask in items:
        if isinstance(mask, dict | tuple):
            yield from _pairs(mask, actions[name], (*path, name))
        else:
            yield (*path, name), mask, actions[name]


def _illegal(path: str, mask: np.ndarray, action: np.ndarray) -> Iterator[str]:
    name = f"action.{path}" if path else "action"
    if action.dtype != np.int64 or mask.dtype != np.bool_ or action.shape != mask.shape[:-1]:
        fitting = ArraySpec(mask.shape[:-1], "int64")
        yield f"trajectory field {name} has a mask {list(mask.shape)}, which is for actions {fitting}"
        return
    inside = (action >= 0) & (action < mask.shape[-1])
    legal = inside & np.take_along_axis(mask, np.where(inside, action, 0)[..., None], axis=-1)[..., 0]
    if not legal.all():
        where = np.argwhere(~legal)[0].tolist()
        yield f"trajectory field {name} holds {action[tuple(where)]} at {where}, which its mask forbids"
