"""Segment: the experience of some environments over some steps, as actors send it and learners train on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from warren.errors import WireError


@dataclass(slots=True)
class Segment:
    """T steps of N environments, time-major.

    Where an episode ends at step t, `observation[t + 1]` already belongs to the next one. An episode that ran out of
    time (truncated) goes on in principle, so `final_value` keeps the value of the observation that was cut off.
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

    @property
    def num_steps(self) -> int:
        """Environment steps within: T * N."""
        return self.reward.size

    def to_dict(self) -> dict[str, Any]:
        """Field name -> array or int; the arrays are not copied."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Segment:
        """The segment that `to_dict` made `data` from. Raises WireError, which names every wrong field."""
        names = [field.name for field in fields(cls)]
        problems = [f"segment has no field {name!r}" for name in names if name not in data]
        problems += [f"segment has an unknown field {name!r}" for name in data if name not in names]
        problems = problems or _problems(data)
        if problems:
            raise WireError("; ".join(problems))
        return cls(**data)


def _problems(data: Mapping[str, Any]) -> list[str]:
    problems = []
    for name, value in data.items():
        if name == "weight_version":
            if not isinstance(value, int) or isinstance(value, bool):
                problems.append(f"segment field 'weight_version' must be an int, is {value!r}")
        elif not isinstance(value, np.ndarray):
            problems.append(f"segment field {name!r} must be an array, is {type(value).__name__}")
        elif name == "observation":
            if value.dtype.kind not in "fiub":
                problems.append(f"segment field 'observation' must be numeric, is {value.dtype}")
        elif name == "action":
            if value.dtype not in (np.int64, np.float32):
                problems.append(f"segment field 'action' must be int64 or float32, is {value.dtype}")
        elif value.dtype != (expected := np.bool_ if name in ("terminated", "truncated") else np.float32):
            problems.append(f"segment field {name!r} must be {np.dtype(expected)}, is {value.dtype}")
    if problems:
        return problems
    steps, envs = data["reward"].shape if data["reward"].ndim == 2 else (0, 0)
    if not steps or not envs:
        return [f"segment field 'reward' must be [T, N] with T, N >= 1, is {list(data['reward'].shape)}"]
    for name, value in data.items():
        if name == "weight_version":
            continue
        if name == "episodes":
            expected, found = "[K, 2]", value.ndim == 2 and value.shape[1] == 2
        elif name == "bootstrap_value":
            expected, found = f"[{envs}]", value.shape == (envs,)
        elif name in ("observation", "action"):
            expected, found = f"[{steps}, {envs}, ...]", value.shape[:2] == (steps, envs)
        else:
            expected, found = f"[{steps}, {envs}]", value.shape == (steps, envs)
        if not found:
            problems.append(f"segment field {name!r} must be {expected}, is {list(value.shape)}")
    return problems


def concatenate(segments: Sequence[Segment]) -> Segment:
    """One segment with the environments of all, along N; their T must agree. It bears the oldest weight version."""
    lengths = {segment.reward.shape[0] for segment in segments}
    if len(lengths) != 1:
        raise ValueError(f"segments of different lengths T cannot be concatenated along N: {sorted(lengths)}")
    if len(segments) == 1:
        return segments[0]
    joined: dict[str, Any] = {"weight_version": min(segment.weight_version for segment in segments)}
    for field in fields(Segment):
        if field.name != "weight_version":
            axis = 0 if field.name in ("bootstrap_value", "episodes") else 1
            joined[field.name] = np.concatenate([getattr(segment, field.name) for segment in segments], axis=axis)
    return Segment(**joined)
