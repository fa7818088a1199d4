"""The moments at which episodes were cut off, kept sparsely: their places, and one row for each of them.

`at` int64 [K, 2]: (step, slot), in ascending order; `kept`: trees [K, ...] by name, "observation" and "action_mask".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from agents.trees import Spec, empty
from warren.trees import Tree, leaves, map_tree, put, take

Cuts = tuple[np.ndarray, dict[str, Tree]]  # at, kept


def places(terminated: np.ndarray, truncated: np.ndarray) -> np.ndarray:
    """Return int64 [K, 2], the steps and slots at which episodes were cut off, of bool [T, N] each."""
    return np.argwhere(truncated & ~terminated)


def gather(specs: Mapping[str, Spec], rows: Sequence[tuple[int, int, Mapping[str, Tree]]]) -> Cuts:
    """Return the cuts of `rows` (step, slot, parts by name) in any order; a missing mask allows all actions."""
    ordered = sorted(rows, key=lambda row: row[:2])
    kept = {name: empty(spec, (len(ordered),)) for name, spec in specs.items()}
    for index, (_, _, parts) in enumerate(ordered):
        for name, part in kept.items():
            if name in parts:
                put(part, index, parts[name])
            else:
                map_tree(lambda mask, index=index: mask.__setitem__(index, True), part)
    return np.array([row[:2] for row in ordered], np.int64).reshape(-1, 2), kept


def cuts_of_slots(cuts: Cuts, which: slice | np.ndarray, slots: int) -> Cuts:
    """Return the cuts of some of `slots` slots, `which` becoming slots 0, 1, ..."""
    at, parts = cuts
    chosen = np.arange(slots)[which]
    place = np.full(slots, -1)
    place[chosen] = np.arange(len(chosen))
    slot = place[at[:, 1]]
    kept = np.flatnonzero(slot >= 0)
    return _ordered(np.stack([at[kept, 0], slot[kept]], axis=1), take(parts, kept))


def joined_cuts(parts: Sequence[Cuts], slots: Sequence[int]) -> Cuts:
    """Return the cuts of trajectories that are joined along their slots; `slots`: how many each has."""
    before = np.concatenate([[0], np.cumsum(slots)[:-1]])
    at = np.concatenate([at + np.array([0, first]) for (at, _), first in zip(parts, before, strict=True)])
    return _ordered(at, map_tree(lambda *leaf: np.concatenate(leaf), *(kept for _, kept in parts)))


def wrong_cuts(given: Sequence[Any], terminated: np.ndarray, truncated: np.ndarray) -> Iterator[str]:
    """Yield how cuts that came over the wire do not fit each other, or do not fit the ends of episodes.

    `given`: the values that came as cut_at, cut_observation and cut_action_mask.
    """
    at, observation, masks = given
    if masks is not None and at is None:
        yield "trajectory field cut_action_mask has no cut_at, to which it belongs"
        return
    if at is None or observation is None:
        if (at is None) != (observation is None):
            yield "trajectory fields cut_at and cut_observation belong together; one is missing"
        return
    expected = places(terminated, truncated)
    if not isinstance(at, np.ndarray) or at.dtype != np.int64 or not np.array_equal(at, expected):
        yield (
            f"trajectory field cut_at must be int64 [{len(expected)}, 2], the steps and slots that are truncated and "
            "not terminated, in ascending order"
        )
        return
    named = [("cut_observation", observation)] + ([] if masks is None else [("cut_action_mask", masks)])
    for field, path, leaf in ((field, *one) for field, tree in named for one in leaves(tree)):
        name = f"trajectory field {field}{f'.{path}' if path else ''}"
        if not isinstance(leaf, np.ndarray):
            yield f"{name} must be an array, is {type(leaf).__name__}"
        elif leaf.shape[:1] != (len(at),):
            yield f"{name} must be [{len(at)}, '...'], is {list(leaf.shape)}"


def _ordered(at: np.ndarray, kept: dict[str, Tree]) -> Cuts:
    order = np.lexsort((at[:, 1], at[:, 0]))
    return at[order], take(kept, order)
