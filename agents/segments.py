"""Segment: the experience of some environments over some steps, as actors send it and learners train on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from warren.errors import WireError

OPTIONAL = ("action_mask",)  # fields that a segment need not have


@dataclass(slots=True)
class Segment:
    """T steps of N environments, time-major.

    Where an episode ends at step t, `observation[t + 1]` already belongs to the next one. An episode that ran out of
    time (truncated) goes on in principle, so `final_value` keeps the value of the observation that was cut off.

    In a game in turns the steps of a column are one player's own decisions in one seat of one game after another; its
    reward at a step is all that it got until its next decision, and an episode ends at its last decision of a game.
    """

    observation: np.ndarray  # [T, N, ...] in the environment's dtype (float64 becomes float32)
    action: np.ndarray  # int64 [T, N], or float32 [T, N, A] before clipping to the space's bounds
    log_prob: np.ndarray  # float32 [T, N], of the policy that acted
    value: np.ndarray  # float32 [T, N], of the policy that acted
    reward: np.ndarray  # float32 [T, N]
    terminated: np.ndarray  # bool [T, N]
    truncated: np.ndarray  # bool [T, N]
    final_value: np.ndarray  # float32 [T, N]: V(the episode's last observation) where truncated, else 0
    bootstrap_value: np.ndarray  # float32 [N]: V(the observation after step T - 1)
    weight_version: int  # of the weights that acted
    episodes: np.ndarray  # float32 [K, 2]: return and length of the episodes that finished within
    action_mask: np.ndarray | None = None  # bool [T, N, A]: which actions were legal; None where all always are

    @property
    def num_steps(self) -> int:
        """Environment steps within: T * N."""
        return self.reward.size

    def to_dict(self) -> dict[str, Any]:
        """Field name -> array or int, without a field that is None; the arrays are not copied."""
        return {field.name: value for field in fields(self) if (value := getattr(self, field.name)) is not None}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Segment:
        """The segment that `to_dict` made `data` from. Raises WireError, which names every wrong field."""
        names = [field.name for field in fields(cls)]
        problems = [f"segment has no field {name!r}" for name in names if name not in data and name not in OPTIONAL]
        problems += [f"segment has an unknown field {name!r}" for name in data if name not in names]
        problems = problems or _problems(data)
        if problems:
            raise WireError("; ".join(problems))
        return cls(**data)


def _problems(data: Mapping[str, Any]) -> list[str]:
    """What is wrong with the types of the fields; if nothing, with their shapes; if nothing, with the numbers."""
    problems = [text for name, value in data.items() if (text := _wrong_type(name, value))]
    return problems or list(_wrong_shapes(data)) or list(_not_finite(data)) or list(_illegal(data))


def _wrong_type(name: str, value: Any) -> str | None:
    if name == "weight_version":
        right = isinstance(value, int) and not isinstance(value, bool)
        return None if right else f"segment field 'weight_version' must be an int, is {value!r}"
    if not isinstance(value, np.ndarray):
        return f"segment field {name!r} must be an array, is {type(value).__name__}"
    match name:
        case "observation":
            expected, right = "numeric", value.dtype.kind in "fiub"
        case "action":
            expected, right = "int64 or float32", value.dtype in (np.int64, np.float32)
        case "terminated" | "truncated" | "action_mask":
            expected, right = "bool", value.dtype == np.bool_
        case _:
            expected, right = "float32", value.dtype == np.float32
    return None if right else f"segment field {name!r} must be {expected}, is {value.dtype}"


def _wrong_shapes(data: Mapping[str, Any]) -> Iterator[str]:
    shape = data["reward"].shape
    if len(shape) != 2 or 0 in shape:
        yield f"segment field 'reward' must be [T, N] with T, N >= 1, is {list(shape)}"
        return
    steps, envs = shape
    for name in data.keys() - {"weight_version", "reward"}:
        found = data[name].shape
        match name:
            case "observation" | "action":
                expected, right = f"[{steps}, {envs}, ...]", found[:2] == shape
            case "action_mask":
                expected, right = f"[{steps}, {envs}, A]", len(found) == 3 and found[:2] == shape
            case "bootstrap_value":
                expected, right = f"[{envs}]", found == (envs,)
            case "episodes":
                expected, right = "[K, 2]", len(found) == 2 and found[1] == 2
            case _:
                expected, right = f"[{steps}, {envs}]", found == shape
        if not right:
            yield f"segment field {name!r} must be {expected}, is {list(found)}"


def _not_finite(data: Mapping[str, Any]) -> Iterator[str]:
    # One nan from one environment would make every weight nan, and the learner would publish them.
    for name, value in data.items():
        if name != "weight_version" and value.dtype.kind == "f" and not np.isfinite(value).all():
            where = np.argwhere(~np.isfinite(value))[0].tolist()
            yield f"segment field {name!r} holds {value[tuple(where)]} at {where}; all numbers must be finite"


def _illegal(data: Mapping[str, Any]) -> Iterator[str]:
    # The log-probability of an action outside its mask is -1e8: one such step would drown a whole batch.
    mask, action = data.get("action_mask"), data["action"]
    if mask is None:
        return
    if action.dtype != np.int64 or action.shape != mask.shape[:2]:
        yield "segment field 'action_mask' is for int64 actions [T, N]"
        return
    inside = (action >= 0) & (action < mask.shape[2])
    legal = inside & np.take_along_axis(mask, np.where(inside, action, 0)[..., None], axis=2)[..., 0]
    if not legal.all():
        where = np.argwhere(~legal)[0].tolist()
        yield f"segment field 'action' holds {action[tuple(where)]} at {where}, which its action_mask forbids"


def concatenate(segments: Sequence[Segment]) -> Segment:
    """One segment with the environments of all, along N; their T must agree. Its weight version is their oldest."""
    lengths = {segment.reward.shape[0] for segment in segments}
    if len(lengths) != 1:
        raise ValueError(f"segments of different lengths T cannot be concatenated along N: {sorted(lengths)}")
    if len(segments) == 1:
        return segments[0]
    joined: dict[str, Any] = {"weight_version": min(segment.weight_version for segment in segments)}
    if len({segment.action_mask is None for segment in segments}) != 1:
        raise ValueError("segments with and without an action_mask cannot be concatenated")
    for field in fields(Segment):
        if field.name != "weight_version" and getattr(segments[0], field.name) is not None:
            axis = 0 if field.name in ("bootstrap_value", "episodes") else 1
            joined[field.name] = np.concatenate([getattr(segment, field.name) for segment in segments], axis=axis)
    return Segment(**joined)
