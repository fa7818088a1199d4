"""The layout of trajectories in a replay: paths of their arrays, also as JSON, and slots that are drawn together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from agents.algorithms.kept_arrays import KeptArrays
from agents.trajectories import Trajectory
from warren.errors import ConfigurationError
from warren.trees import Tree, map_tree

LARGE = 1 << 17  # bytes of a draw's field that is written into kept memory: glibc returns such memory to the system
KEPT = KeptArrays(16)


def rows_of(flat: np.ndarray, at: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return the rows `at` of `flat` [M, ...] as [*shape, ...]."""
    if flat[:1].nbytes * len(at) < LARGE:
        return flat.take(at, axis=0).reshape(*shape, *flat.shape[1:])
    out = KEPT.empty((len(at), *flat.shape[1:]), flat.dtype)
    flat.take(at, axis=0, out=out, mode="clip")  # any other mode would copy twice
    return out.reshape(*shape, *flat.shape[1:])


def slots_of_groups(first: Trajectory) -> int:
    """Return how many slots each group has. Raises ConfigurationError where they do not lie together."""
    if first.group is None:
        raise ConfigurationError(
            "algorithm: it learns from all agents of a game at once, and this environment's learn each for itself; use "
            "one whose agents learn together (env.together=true where two play)"
        )
    several = first.num_slots // len(np.unique(first.group))
    if first.num_slots % several or (np.diff(first.group.reshape(-1, several), axis=1) != 0).any():
        raise ConfigurationError("a replay of groups takes segments whose groups are equally large and lie together")
    return several


def told(tree: Tree) -> Any:
    """Return a tree as JSON that tells a tuple from a table: [...] and {...}."""
    if isinstance(tree, Mapping):
        return {name: told(part) for name, part in tree.items()}
    return [told(part) for part in tree] if isinstance(tree, tuple) else tree


def understood(given: Any) -> Tree:
    """Undo `told`."""
    if isinstance(given, Mapping):
        return {name: understood(part) for name, part in given.items()}
    return tuple(understood(part) for part in given) if isinstance(given, list) else given


def like_cuts(tree: Tree) -> Tree:
    """Return the paths of arrays that are kept at cuts, for the paths of fields."""
    return map_tree(lambda path: f"cut.{path}", tree)


def paths(tree: Tree, path: str) -> Tree:
    """Return a tree like `tree` with the path of each leaf in its place."""
    if isinstance(tree, Mapping):
        return {name: paths(part, f"{path}.{name}") for name, part in tree.items()}
    if isinstance(tree, tuple):
        return tuple(paths(part, f"{path}.{index}") for index, part in enumerate(tree))
    return path
