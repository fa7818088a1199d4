"""Trees of arrays: an array, or a dict or a tuple of trees, as gymnasium's Dict and Tuple spaces nest them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

Tree = Any  # np.ndarray | dict[str, Tree] | tuple[Tree, ...]


def map_tree(function: Callable[..., Any], tree: Tree, *others: Tree) -> Tree:
    """`function` of each leaf of `tree` and of the leaves of `others` at the same place; a tree like `tree`."""
    if isinstance(tree, dict):
        return {name: map_tree(function, part, *(other[name] for other in others)) for name, part in tree.items()}
    if isinstance(tree, tuple):
        return tuple(map_tree(function, *parts) for parts in zip(tree, *others, strict=True))
    return function(tree, *others)


def put(tree: Tree, at: Any, values: Tree) -> None:
    """Writes `values` into each array of `tree` at `at`: a step, some slots, or both. What `tree` lacks is left out."""
    if isinstance(tree, dict):  # written out: a sampler calls it at every step
        for name, part in tree.items():
            put(part, at, values[name])
    elif isinstance(tree, tuple):
        for part, value in zip(tree, values, strict=True):
            put(part, at, value)
    else:
        tree[at] = values


def take(tree: Tree, at: Any) -> Tree:
    """Each array at `at`, as numpy or torch index it: views of a slice, copies of chosen rows."""
    return map_tree(lambda array: array[at], tree)


def leaves(tree: Tree, path: str = "") -> Iterator[tuple[str, Any]]:
    """(path, leaf) of each leaf: "camera.left", "1.speed"; "" for a tree that is one leaf."""
    parts = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, tuple) else None
    if parts is None:
        yield path, tree
        return
    for name, part in parts:
        yield from leaves(part, f"{path}.{name}" if path else str(name))
