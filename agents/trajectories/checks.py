"""Checks of a trajectory that came over the wire: fields that fit each other and the run, numbers that can be used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from agents.trajectories.cuts import wrong_cuts
from agents.trajectories.specs import OF_SLOTS, TrajectorySpec
from agents.trees import ArraySpec, not_finite, problems
from warren.trees import Tree, leaves

CUTS = ("cut_at", "cut_observation", "cut_action_mask")
DTYPES = {"action": ["int64", "float32"], "reward": ["float32"], "action_mask": ["bool"]}
NUMBERS = {np.dtype(code).name for code in "?bBhHiIlLefd"}


def mismatches(data: Mapping[str, Any], spec: TrajectorySpec | None) -> Iterator[str]:
    """Yield a message for each field that does not fit the others, or `spec`."""
    done = data["terminated"]
    if not isinstance(done, np.ndarray) or done.dtype != np.bool_ or done.ndim != 2 or 0 in done.shape:
        found = f"{done.dtype} {list(done.shape)}" if isinstance(done, np.ndarray) else type(done).__name__
        yield f"trajectory field terminated must be bool [T, N] with T, N >= 1, is {found}"
        return
    steps, slots = done.shape
    wrong = problems(ArraySpec((), "bool"), data["truncated"], (steps, slots), "trajectory field truncated")
    wrong = wrong or list(wrong_cuts([data.get(name) for name in CUTS], done, data["truncated"]))
    yield from wrong
    yield from problems(ArraySpec((), "int64"), data["version"], (slots,), "trajectory field version")
    if data.get("valid") is not None:
        yield from _invalid(data["valid"], data, (steps, slots))
    if data.get("group") is not None:
        yield from problems(ArraySpec((), "int64"), data["group"], (slots,), "trajectory field group")
    episodes = data["episodes"]
    if not isinstance(episodes, np.ndarray) or episodes.dtype != np.float32 or episodes.ndim != 2:
        yield "trajectory field episodes must be float32 [K, 2 or more]"
    elif episodes.shape[1] < 2 or (spec is not None and episodes.shape[1] != 2 + spec.returns):
        wanted = "2 or more" if spec is None else 2 + spec.returns
        yield f"trajectory field episodes must be float32 [K, {wanted}], is {list(episodes.shape)}"
    if spec is not None:
        yield from () if wrong else spec.problems(data)
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


def _invalid(valid: Any, data: Mapping[str, Any], shape: tuple[int, int]) -> Iterator[str]:
    wrong = problems(ArraySpec((), "bool"), valid, shape, "trajectory field valid")
    yield from wrong
    if not wrong and not valid.any():
        yield "trajectory field valid marks no decision"
    if not wrong and (open_ends := ~(valid | data["terminated"])).any():
        where = np.argwhere(open_ends)[0].tolist()
        yield f"trajectory field terminated must be True at {where}, which is not valid"


def wrong_numbers(data: Mapping[str, Any], spec: TrajectorySpec | None = None) -> Iterator[str]:
    """Yield a message for each field with a number that is not finite, and for an action that its mask forbids.

    Masks over several choices, int64 [..., K], are checked by the counts of choices in `spec`.
    """
    # One NaN from one environment would make every weight NaN, and the learner would publish them.
    for name, value in data.items():
        if value is not None:
            yield from not_finite(value, f"trajectory field {name}")
    # The log-probability of an action outside its mask is -1e8: one such step would drown a whole batch.
    masks, actions = data.get("action_mask"), data["action"]
    if masks is not None:
        pairs = [((), masks, actions)] if isinstance(masks, np.ndarray) else _pairs(masks, actions)
        for path, mask, action in pairs:
            part = None if spec is None else spec.action
            for name in path:
                part = None if part is None else part[name]
            yield from _illegal(".".join(map(str, path)), mask, action, part)


def _pairs(masks: Tree, actions: Tree, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any, Any]]:
    """Yield (path, mask, action) of each part of an action that has a mask."""
    items = masks.items() if isinstance(masks, dict) else enumerate(masks)
    for name, mask in items:
        if isinstance(mask, dict | tuple):
            yield from _pairs(mask, actions[name], (*path, name))
        else:
            yield (*path, name), mask, actions[name]


def _illegal(path: str, mask: np.ndarray, action: np.ndarray, spec: ArraySpec | None) -> Iterator[str]:
    name = f"action.{path}" if path else "action"
    if action.dtype == np.int64 and mask.dtype == np.bool_ and action.shape[:-1] == mask.shape[:-1]:
        counts = () if spec is None or not isinstance(spec.count, tuple) else spec.count
        if len(counts) == action.shape[-1] and sum(counts) == mask.shape[-1]:
            begins = [0, *accumulate(counts)]
            for choice, (begin, end) in enumerate(pairwise(begins)):
                yield from _illegal(f"{path}.{choice}" if path else str(choice), mask[..., begin:end],
                                    action[..., choice], None)  # fmt: skip
        return
    if action.dtype != np.int64 or mask.dtype != np.bool_ or action.shape != mask.shape[:-1]:
        fitting = ArraySpec(mask.shape[:-1], "int64")
        yield f"trajectory field {name} has a mask {list(mask.shape)}, which is for actions {fitting}"
        return
    inside = (action >= 0) & (action < mask.shape[-1])
    legal = inside & np.take_along_axis(mask, np.where(inside, action, 0)[..., None], axis=-1)[..., 0]
    if not legal.all():
        where = np.argwhere(~legal)[0].tolist()
        yield f"trajectory field {name} holds {action[tuple(where)]} at {where}, which its mask forbids"
