"""A gymnasium space as a tree of named leaves: networks encode them one by one, and actions consist of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from warren.errors import ConfigurationError

Path = tuple[str | int, ...]
Leaves = Tensor | dict[str, Tensor]  # one tensor where the space is a leaf itself, else name -> tensor


class SpaceTree:
    """The leaves of `space`: Box, Discrete, MultiDiscrete and MultiBinary, within any Dict and Tuple.

    A leaf's name is its path: "hand/0" is the first of the Tuple that a Dict holds as "hand". A space that is a
    leaf itself is `bare`: it has one leaf, called "", and its values are not put into a dict.
    """

    def __init__(self, space: gymnasium.Space[Any], kind: str) -> None:
        """Errors call it `kind` ("observation", "action"). Raises ConfigurationError for any other space."""
        self.space = space
        self.bare = not isinstance(space, spaces.Dict | spaces.Tuple)
        self._paths = dict(_leaves(space, (), kind))
        self.leaves = {_name(path): leaf for path, leaf in self._paths.items()}
        if not self.leaves or len(self.leaves) < len(self._paths):
            raise ConfigurationError(f"{kind} space {space} must hold at least one leaf, and none twice under one name")

    def flatten(self, value: Any) -> Any:
        """Return a value of the space, with any leading dimensions, as name -> part; a bare space's value itself."""
        if self.bare:
            return value
        return {name: _at(value, path) for name, path in zip(self.leaves, self._paths, strict=True)}

    def unflatten(self, leaves: Any) -> Any:
        """Undo `flatten`: nest the leaves in dicts and tuples as the space does."""
        return leaves if self.bare else _nested(self.space, (), leaves)

    def tensors(self, value: Any, device: torch.device) -> Leaves:
        """Return `flatten` of a value as tensors on `device`: Box float32 (images stay uint8), all others int64."""
        if self.bare:
            return torch.as_tensor(value, dtype=dtype_of(self.space), device=device)
        return {
            name: torch.as_tensor(part, dtype=dtype_of(self.leaves[name]), device=device)
            for name, part in self.flatten(value).items()
        }


def dtype_of(leaf: gymnasium.Space[Any]) -> torch.dtype:
    """Return the dtype of the tensors that hold values of a leaf."""
    if not isinstance(leaf, spaces.Box):
        return torch.int64
    return torch.uint8 if is_image(leaf) else torch.float32


def is_image(leaf: gymnasium.Space[Any]) -> bool:
    """Return True for an image: bytes from 0 to 255 in three dimensions, or four (stacked frames of colour)."""
    return (
        isinstance(leaf, spaces.Box)
        and leaf.dtype == np.uint8
        and len(leaf.shape) in (3, 4)
        and bool((leaf.low == 0).all() and (leaf.high == 255).all())
    )


def _leaves(space: gymnasium.Space[Any], path: Path, kind: str) -> Iterator[tuple[Path, gymnasium.Space[Any]]]:
    match space:
        case spaces.Dict():
            for key, part in space.spaces.items():
                yield from _leaves(part, (*path, key), kind)
        case spaces.Tuple():
            for index, part in enumerate(space.spaces):
                yield from _leaves(part, (*path, index), kind)
        case spaces.Box() | spaces.Discrete() | spaces.MultiDiscrete() | spaces.MultiBinary():
            yield path, space
        case _:
            where = f" at {_name(path)!r}" if path else ""
            raise ConfigurationError(
                f"{kind} space {space}{where} is not one that networks take: Box, Discrete, MultiDiscrete, "
                "MultiBinary, and Dict or Tuple of those; change it by gymnasium.wrappers.TransformObservation or "
                "TransformAction, "
                "in a function of yours: env.id=path/to/file.py:make"
            )


def _name(path: Path) -> str:
    return "/".join(map(str, path))


def _at(value: Any, path: Path) -> Any:
    for key in path:
        value = value[key]
    return value


def _nested(space: gymnasium.Space[Any], path: Path, leaves: Mapping[str, Any]) -> Any:
    if isinstance(space, spaces.Dict):
        return {key: _nested(part, (*path, key), leaves) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_nested(part, (*path, index), leaves) for index, part in enumerate(space.spaces))
    return leaves[_name(path)]
