"""Specs: the shapes and dtypes of the trees of arrays that observations, actions and memories are made of.

A Spec is a tree (see warren/trees.py) with an ArraySpec at each leaf: the shape and dtype of one element, without the
leading axes of steps and slots.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from warren.errors import ConfigurationError
from warren.trees import Tree, leaves, map_tree

Spec = Any  # ArraySpec | dict[str, Spec] | tuple[Spec, ...]


@dataclass(frozen=True)
class ArraySpec:
    """One element of an array: its shape, the name of its dtype ("float32"), and the `count` of values 0, 1, ...

    For several choices, int64 [K, ...], `count` has one number for each, nested as they are.
    """

    shape: tuple[int, ...]
    dtype: str
    count: int | tuple[Any, ...] | None = None

    def __str__(self) -> str:
        return f"{self.dtype} {list(self.shape)}"


def spec_of(space: gymnasium.Space[Any]) -> Spec:
    """Return the Spec of a space's elements as they are sent: float64 becomes float32, Discrete values are int64.

    Raises ConfigurationError for a space that arrays of one shape cannot hold.
    """
    match space:
        case spaces.Dict():
            return {name: spec_of(part) for name, part in space.spaces.items()}
        case spaces.Tuple():
            return tuple(spec_of(part) for part in space.spaces)
        case spaces.Box():
            return ArraySpec(tuple(space.shape), travelling(np.dtype(space.dtype)).name)
        case spaces.MultiBinary():
            return ArraySpec(tuple(space.shape), "int8", 2)
        case spaces.Discrete():
            return ArraySpec((), "int64", int(space.n) if space.start == 0 else None)
        case spaces.MultiDiscrete():
            return ArraySpec(tuple(space.shape), "int64", None if space.start.any() else _nested(space.nvec.tolist()))
        case _:
            raise ConfigurationError(
                f"space {space} holds no arrays of one shape; Box, Discrete, MultiDiscrete, MultiBinary, and Dict and "
                "Tuple of those do: wrap the environment"
            )


def _nested(counts: Any) -> Any:
    return tuple(map(_nested, counts)) if isinstance(counts, list) else counts


def travelling(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype that arrays of `dtype` are collected and sent in."""
    return np.dtype(np.float32) if dtype == np.float64 else dtype


def empty(spec: Spec, leading: tuple[int, ...]) -> Tree:
    """Return uninitialised arrays [*leading, ...]."""
    return map_tree(lambda leaf: np.empty(leading + leaf.shape, leaf.dtype), spec)


def zeros(spec: Spec, leading: tuple[int, ...]) -> Tree:
    """Return arrays of zeros, [*leading, ...]."""
    return map_tree(lambda leaf: np.zeros(leading + leaf.shape, leaf.dtype), spec)


def cast(spec: Spec, tree: Tree) -> Tree:
    """Return the parts of `tree` that `spec` has, as arrays of its dtypes; copied only where a dtype differs."""
    return map_tree(lambda leaf, part: np.asarray(part, leaf.dtype), spec, tree)


def problems(spec: Spec, tree: Tree, leading: tuple[int, ...], name: str) -> list[str]:
    """Return how `tree`, called `name`, differs from arrays [*leading, ...] of `spec`; [] where it does not."""
    if isinstance(spec, ArraySpec):
        if not isinstance(tree, np.ndarray):
            return [f"{name} must be an array, is {type(tree).__name__}"]
        expected = ArraySpec(leading + spec.shape, spec.dtype)
        found = ArraySpec(tree.shape, tree.dtype.name)
        if found != expected:
            return [f"{name} must be {expected}, is {found}"]
        if spec.count is not None and (outside := (tree < 0) | (tree >= np.asarray(spec.count))).any():
            where = np.argwhere(outside)[0].tolist()
            count = np.broadcast_to(spec.count, tree.shape)[tuple(where)]
            return [f"{name} holds {tree[tuple(where)]} at {where}; it must be within 0 and {count - 1}"]
        return []
    if type(tree) is not type(spec):
        kind = "a table" if isinstance(spec, dict) else "a tuple"
        return [f"{name} must be {kind} of arrays, is {type(tree).__name__}"]
    if isinstance(spec, tuple):
        if len(spec) != len(tree):
            return [f"{name} must have {len(spec)} parts, has {len(tree)}"]
        spec, tree = dict(enumerate(spec)), dict(enumerate(tree))
    wrong: list[str] = [f"{name} has no part {part!r}" for part in spec if part not in tree]
    wrong += [f"{name} has an unknown part {part!r}" for part in tree if part not in spec]
    for part in spec:
        if part in tree:
            wrong += problems(spec[part], tree[part], leading, f"{name}.{part}")
    return wrong


def not_finite(tree: Tree, name: str) -> Iterator[str]:
    """Yield a message with the place of the first number of each leaf that is not finite."""
    for path, leaf in leaves(tree):
        # A sum is not finite where a number is not, and far quicker to check.
        if leaf.dtype.kind == "f" and not np.isfinite(leaf.sum()) and not np.isfinite(leaf).all():
            where = np.argwhere(~np.isfinite(leaf))[0].tolist()
            place = f"{name}.{path}" if path else name
            yield f"{place} holds {leaf[tuple(where)]} at {where}; all numbers must be finite"


def flattened(array: np.ndarray) -> np.ndarray:
    """Return an array [T, N, ...] as [T * N, ...], a view if possible."""
    steps, slots, *rest = array.shape
    return array.reshape(steps * slots, *rest)  # -1 is ambiguous where an axis of the rest has length 0
