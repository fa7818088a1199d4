"""The observations at which episodes ran out of time, kept sparsely: where they are, and one row for each of them.

`at` int64 [K, 2]: (step, slot), in ascending order; `observation`: a tree [K, ...].
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from agents.trees import Spec, empty
from warren.trees import Tree, leaves, map_tree, take

Cuts = tuple[np.ndarray, Tree]  # at, observation


def places(terminated: np.ndarray, truncated: np.ndarray) -> np.ndarray:
    """Return int64 [K, 2], the steps and slots at which episodes were cut off, of bool [T, N] each."""
    return np.argwhere(truncated & ~terminated)


def gather(spec: Spec, rows: Sequence[tuple[int, int, Tree]]) -> Cuts:
    """Return the cuts of `rows` (step, slot, observation [...]) in any order; `spec`: of one observation."""
    ordered = sorted(rows, key=lambda row: row[:2])
    observation = empty(spec, (len(ordered),))
    for index, (_, _, one) in enumerate(ordered):
        map_tree(lambda array, part, index=index: array.__setitem__(index, part), observation, one)
    return np.array([row[:2] for row in ordered], np.int64).reshape(-1, 2), observation


def cuts_of_slots(cuts: Cuts, which: slice | np.ndarray, slots: int) -> Cuts:
    """Return the cuts of some of `slots` slots, `which` becoming slots 0, 1, ..."""
    at, observation = cuts
    chosen = np.arange(slots)[which]
    place = np.full(slots, -1)
    place[chosen] = np.arange(len(chosen))
    slot = place[at[:, 1]]
    kept = np.flatnonzero(slot >= 0)
    return _ordered(np.stack([at[kept, 0], slot[kept]], axis=1), take(observation, kept))


def joined_cuts(parts: Sequence[Cuts], slots: Sequence[int]) -> Cuts:
    """Return the cuts of trajectories that are joined along their slots, of which each has so many."""
    before = np.concatenate([[0], np.cumsum(slots)[:-1]])
    at = np.concatenate([at + np.array([0, first]) for (at, _), first in zip(parts, before, strict=True)])
    return _ordered(at, map_tree(lambda *leaf: np.concatenate(leaf), *(observation for _, observation in parts)))


def wrong_cuts(at: Any, observation: Any, terminated: np.ndarray, truncated: np.ndarray) -> Iterator[str]:
    """Yield how cuts that came over the wire do not fit each other, and how their episodes ended."""
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
    for path, leaf in leaves(observation):
        name = f"trajectory field cut_observation{f'.{path}' if path else ''}"
        if not isinstance(leaf, np.ndarray):
            yield f"{name} must be an array, is {type(leaf).__name__}"
        elif leaf.shape[:1] != (len(at),):
            yield f"{name} must be [{len(at)}, '...'], is {list(leaf.shape)}"


def _ordered(at: np.ndarray, observation: Tree) -> Cuts:
    order = np.lexsort((at[:, 1], at[:, 0]))
    return at[order], take(observation, order)
