"""TrajectorySpec: shapes and dtypes of the trajectories of one run."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import gymnasium
from gymnasium import spaces

from agents.spaces import SpaceTree
from agents.trees import ArraySpec, Spec, problems, spec_of, zeros
from warren.trees import Tree, map_tree

OF_SLOTS = {"last", "version", "memory", "group"}  # [N, ...]; all others but `episodes` are [T, N, ...]
# Fields that samplers collect only if an algorithm asks for them (agents.Needs); they always collect all others.
ON_REQUEST = ("extras.log_prob", "extras.value", "last.value", "cut.value")
# A field that they collect only if it is named: observations at cuts, with the legal actions there and at the end.
CUT_OBSERVATION = "cut.observation"


def requested(fields: Collection[str] | None) -> list[str]:
    """Return those of ON_REQUEST and CUT_OBSERVATION that `fields` of an algorithm's Needs name.

    None stands for all of ON_REQUEST.
    """
    return list(ON_REQUEST) if fields is None else [name for name in (*ON_REQUEST, CUT_OBSERVATION) if name in fields]


REWARD = ArraySpec((), "float32")  # one channel


@dataclass(frozen=True)
class TrajectorySpec:
    """Shape and dtype of each field of one run's trajectories, for one step, or one slot."""

    observation: Spec
    action: Spec
    extras: dict[str, ArraySpec]
    last: dict[str, Spec]
    cut: dict[str, ArraySpec]
    memory: dict[str, ArraySpec] = field(default_factory=dict)
    action_mask: Spec | None = None
    cut_observation: Spec | None = None  # of one observation, if observations at which episodes were cut off are kept
    cut_action_mask: Spec | None = None  # legal actions there
    reward: ArraySpec = REWARD
    returns: int = 0  # columns of `episodes` after the first two
    privileged: tuple[str, ...] = ()  # keys of the observation that the value saw, and the actor did not

    @property
    def values_steps(self) -> bool:
        """Return True where each step needs the policy's value.

        It does if values are kept, if the moment after the last step has one, or if the policy has a memory, which
        each step changes.
        """
        return "value" in self.extras or "value" in self.last or bool(self.memory)

    @property
    def kept_at_cuts(self) -> dict[str, Spec]:
        """Parts that are kept of the moments at which episodes were cut off, besides `cut`; {} where none are."""
        kept = {"observation": self.cut_observation, "action_mask": self.cut_action_mask}
        return {name: part for name, part in kept.items() if part is not None}

    def after_end(self, slots: tuple[int, ...]) -> dict[str, Tree]:
        """Return `last` [*slots, ...] of trajectories that nothing follows: zeros, and every action legal."""
        last: dict[str, Tree] = zeros(self.last, slots)
        if "action_mask" in last:
            map_tree(lambda mask: mask.fill(True), last["action_mask"])
        return last

    @property
    def keeps_cuts(self) -> bool:
        """Return True where something is kept of the observations at which episodes were cut off."""
        return bool(self.cut) or self.cut_observation is not None

    def problems(self, data: Mapping[str, Any]) -> list[str]:
        """Return a message for each field of a trajectory that does not fit this."""
        steps, slots = data["terminated"].shape
        found: list[str] = []
        if (self.action_mask is None) != (data.get("action_mask") is None):
            has = "has no" if data.get("action_mask") is None else "has an"
            found.append(f"trajectory {has} action_mask, which is not as the run's environment declares it")
        for name in ("cut_observation", "cut_action_mask"):
            spec, given = getattr(self, name), data.get(name)
            if (spec is None) != (given is None):
                has = f"no {name}, which" if given is None else f"a {name}, which nothing in"
                found.append(f"trajectory has {has} the run's algorithm asks for")
            elif given is not None:
                found += problems(spec, given, (len(data["cut_at"]),), f"trajectory field {name}")
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
    """Return the spec of trajectories for algorithms that learn from the decisions of the policy that acted.

    `legal_actions`: whether each step has an action_mask; `memory`: name -> shape of a slot's part of it; `channels`:
    reward channels that have a value each, 0 for one reward; `returns`: channels' returns in `episodes`; `privileged`:
    keys of the observation; `fields`: as in Needs, those of ON_REQUEST to include, None for all. Raises
    ConfigurationError for spaces without a Spec.
    """
    number = ArraySpec((), "float32")
    value = ArraySpec((channels,), "float32") if channels else number
    wanted, seen = requested(fields), spec_of(observation_space)

    def asked(group: str, **parts: ArraySpec) -> dict[str, ArraySpec]:
        return {name: part for name, part in parts.items() if f"{group}.{name}" in wanted}

    masks = masks_of(action_space) if legal_actions else None
    of_moments = masks if CUT_OBSERVATION in wanted else None
    masked = {} if of_moments is None else {"action_mask": of_moments}
    return TrajectorySpec(
        observation=seen,
        action=drawn(action_space),
        extras=asked("extras", log_prob=number, value=value),
        last={"observation": seen, **asked("last", value=value), **masked},
        cut=asked("cut", value=value),
        cut_observation=seen if CUT_OBSERVATION in wanted else None,
        cut_action_mask=of_moments,
        reward=value,
        returns=returns,
        privileged=privileged,
        memory={name: ArraySpec(tuple(shape), "float32") for name, shape in (memory or {}).items()},
        action_mask=masks,
    )


def drawn(action_space: gymnasium.Space[Any]) -> Spec:
    """Return the Spec of actions as policies draw them; for a Dict or Tuple, leaf name -> that of the leaf.

    Policies count from 0, wherever a space begins, and put several choices or numbers into one row.
    """
    tree = SpaceTree(action_space, "action")
    parts: dict[str, ArraySpec] = {}
    for name, leaf in tree.leaves.items():
        size = (prod(leaf.shape or ()),)
        match leaf:
            case spaces.Discrete():
                parts[name] = ArraySpec((), "int64", int(leaf.n))
            case spaces.MultiDiscrete():
                parts[name] = ArraySpec(size, "int64", tuple(leaf.nvec.ravel().tolist()))
            case spaces.MultiBinary():
                parts[name] = ArraySpec(size, "int64", size[0] * (2,))
            case _:
                parts[name] = ArraySpec(size, "float32")
    return parts[""] if tree.bare else parts


def masks_of(action_space: gymnasium.Space[Any]) -> Spec | None:
    """Return the Spec of the masks of legal actions, for a Dict or Tuple of each discrete leaf; None without one.

    The choices of a leaf stand one after another, as in `Policy.step`.
    """
    of_actions = drawn(action_space)
    parts = {"": of_actions} if isinstance(of_actions, ArraySpec) else of_actions
    masks = {name: ArraySpec((choices(part),), "bool") for name, part in parts.items() if part.count is not None}
    return masks.get("") if parts is not of_actions else masks or None


def choices(action: ArraySpec) -> int:
    """Return how many choices the mask of a discrete `action` has."""
    return action.count if isinstance(action.count, int) else sum(action.count or ())
