"""Trees of arrays: an array, or a dict or a tuple of trees, as gymnasium's Dict and Tuple spaces nest them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

Tree = Any  # np.ndarray | dict[str, Tree] | tuple[Tree, ...]


def map_tree(function: Callable[..., Any], tree: Tree, *others: Tree) -> Tree:
    """Return a tree like `tree` with `function(leaf, *leaves of others at the same place)` at each leaf."""
    if isinstance(tree, dict):
        return {name: map_tree(function, part, *(other[name] for other in others)) for name, part in tree.items()}
    if isinstance(tree, tuple):
        return tuple(map_tree(function, *parts) for parts in zip(tree, *others, strict=True))
    return function(tree, *others)


def put(tree: Tree, at: Any, values: Tree) -> None:
    """Write `values` into each array of `tree` at the index `at`. Entries that `tree` lacks are left out."""
    if isinstance(tree, dict):  # not by map_tree, for speed: a sampler calls it at every step
        for name, part in tree.items():
            put(part, at, values[name])
    elif isinstance(tree, tuple):
        for part, value in zip(tree, values, strict=True):
            put(part, at, value)
    else:
        tree[at] = values


def take(tree: Tree, at: Any) -> Tree:
    """Index each array with `at`, as numpy or torch do: views for a slice, copies for chosen rows."""
    return map_tree(lambda array: array[at], tree)


def leaves(tree: Tree, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (path, leaf) for each leaf: "camera.left", "1.speed"; "" for a tree that is one leaf."""
    parts = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, tuple) else None
    if parts is None:
        yield path, tree
        return
    for name, part in parts:
        yield from leaves(part, f"{path}.{name}" if path else str(name))
