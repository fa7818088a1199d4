"""Masks of legal actions: every form that environments give them in, read as one row of booleans.

An environment gives a mask with each observation: as `info["action_mask"]`, or as the key `action_mask` of a Dict
observation, which MaskFromObservation moves into the info. The mask has the form that gymnasium's
`action_space.sample(mask)` takes, or all choices one after another:

| actions       | gymnasium's form                                        | one after another                      |
|---------------|---------------------------------------------------------|----------------------------------------|
| Discrete      | [n]                                                     | the same                               |
| MultiDiscrete | a tuple of [n_i]                                        | [n_1 + n_2 + ...]                      |
| MultiBinary   | [n] of 0: only 0, 1: only 1, 2: both                    | [2 n]: is 0 legal, is 1 legal, of each |
| Dict, Tuple   | such a form for each part; all is legal in what is None | those of all parts in their order      |
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from warren.errors import ConfigurationError
from warren.trees import Tree

KEY = "action_mask"
FINAL = "final_action_mask"  # key of a vector's info: the masks at "final_obs" of episodes that were cut off


class WrongMask(ValueError):
    """Raised for a mask of another form, or without a legal action; describes the mask without the environment's id."""


class _Part:
    """The choices of one leaf of an action space; `places` of them in a row."""

    def __init__(self, name: str, leaf: gymnasium.Space[Any], first: int) -> None:
        self.name, self.leaf = name, leaf
        counts = _counts(leaf)
        self.size = int(sum(counts))
        self.places = slice(first, first + self.size)
        self._begins = np.cumsum([0, *counts[:-1]])  # first place of each choice
        self._several = len(counts) > 1

    def read(self, given: Any) -> np.ndarray:
        """Return bool [size] from a form of the table. Raises WrongMask."""
        flat = np.asarray(given) if isinstance(given, np.ndarray) and given.ndim == 1 else _flat(given)
        if isinstance(self.leaf, spaces.MultiBinary) and 2 * len(flat) == self.size:
            if not np.isin(flat, (0, 1, 2)).all():
                raise WrongMask(f"gave the {KEY} {_shown(given)}{self._of()}; a MultiBinary's is of 0, 1 and 2")
            return np.stack([flat != 1, flat != 0], 1).ravel()
        if flat.shape != (self.size,):
            raise WrongMask(
                f"gave an {KEY} of {len(flat)} numbers{self._of()}; {self.leaf} has {self.size} choices, each True or "
                "False"
            )
        legal = flat if flat.dtype == np.bool_ else flat == 1
        if legal is not flat and not (legal | (flat == 0)).all():
            raise WrongMask(f"gave the {KEY} {_shown(given)}{self._of()}; its numbers are True or False, 1 or 0")
        if not (np.logical_or.reduceat(legal, self._begins).all() if self._several else legal.any()):
            raise WrongMask(f"gave the {KEY} {_shown(given)}{self._of()}, which leaves no legal action")
        return legal

    def form(self, row: np.ndarray) -> Any:
        """Return the choices of a row in gymnasium's form."""
        mine = row[self.places].astype(np.int8)
        if isinstance(self.leaf, spaces.MultiDiscrete):
            return _nested(np.split(mine, self._begins[1:]), self.leaf.nvec.shape)
        if isinstance(self.leaf, spaces.MultiBinary):
            zero, one = mine[0::2], mine[1::2]
            return np.where(zero & one, 2, one).astype(np.int8).reshape(self.leaf.shape)
        return mine

    def _of(self) -> str:
        return f" for action {self.name!r}" if self.name else ""


class Masks:
    """The masks of one action space. A row is bool [size]: all choices of all its leaves."""

    def __init__(self, space: gymnasium.Space[Any]) -> None:
        self.space = space
        self._bare = not isinstance(space, spaces.Dict | spaces.Tuple)
        self._parts: dict[str, _Part] = {}
        self.size = 0
        for name, leaf in _leaves(space):
            if _counts(leaf):
                part = self._parts[name] = _Part(name, leaf, self.size)
                self.size += part.size

    @classmethod
    def of(cls, space: gymnasium.Space[Any]) -> Masks | None:
        """Return the masks of `space`; None where it has no discrete part."""
        masks = cls(space)
        return masks if masks.size else None

    def row(self, given: Any) -> np.ndarray:
        """Return bool [size] from what an environment gave. Raises WrongMask."""
        if self._bare:
            return self._parts[""].read(given)
        if not isinstance(given, dict | tuple):
            flat = _flat(given)
            if flat.shape != (self.size,):
                raise WrongMask(f"gave an {KEY} of {len(flat)} numbers; {self.space} has {self.size} choices")
            parts = [part.read(flat[part.places]) for part in self._parts.values()]
            return np.concatenate(parts)
        row = np.ones(self.size, np.bool_)
        for name, form in _leaves(given, self.space):
            if form is not None and name in self._parts:
                part = self._parts[name]
                row[part.places] = part.read(form)
        return row

    def row_at_end(self, given: Any) -> np.ndarray:
        """Return bool [size] of an observation at which no decision follows; all True if no mask, or no legal action,
        is given.
        """
        try:
            return np.ones(self.size, np.bool_) if given is None else self.row(given)
        except WrongMask:
            return np.ones(self.size, np.bool_)

    def tree(self, rows: np.ndarray) -> Tree:
        """Return rows bool [N, size] as policies take them: for a Dict or Tuple, leaf name -> [N, its choices]."""
        if self._bare:
            return rows
        return {name: rows[:, part.places] for name, part in self._parts.items()}

    def rows(self, tree: Tree) -> np.ndarray:
        """Undo `tree`."""
        return np.concatenate(list(tree.values()), 1) if isinstance(tree, dict) else tree

    def draw(self, space: gymnasium.Space[Any], row: np.ndarray) -> Any:
        """Draw a legal action from `space`, which equals this one, by that space's generator."""
        if self._bare:
            return space.sample(self._parts[""].form(row))
        return space.sample(self._form(self.space, "", row))

    def _form(self, space: gymnasium.Space[Any], path: str, row: np.ndarray) -> Any:
        if isinstance(space, spaces.Dict):
            return {key: self._form(part, _under(path, key), row) for key, part in space.spaces.items()}
        if isinstance(space, spaces.Tuple):
            return tuple(self._form(part, _under(path, i), row) for i, part in enumerate(space.spaces))
        part = self._parts.get(path)
        return None if part is None else part.form(row)


class MaskKey:
    """A Dict of observations without its key `action_mask`; if only the key "observation" is left, that key's value."""

    def __init__(self, space: spaces.Dict) -> None:
        self._left = [key for key in space.spaces if key != KEY]
        if not self._left:
            raise ConfigurationError(f"observations {space} are nothing but an {KEY}; give a key of what is seen")
        self._only = self._left == ["observation"]
        self.space = space["observation"] if self._only else spaces.Dict({key: space[key] for key in self._left})

    @classmethod
    def of(cls, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]) -> MaskKey | None:
        """Return the MaskKey for an environment of these spaces; None if its observations hold no mask."""
        if not isinstance(observation_space, spaces.Dict) or KEY not in observation_space.spaces:
            return None
        return cls(observation_space) if Masks.of(action_space) is not None else None

    def split(self, observation: Any) -> tuple[Any, Any]:
        """Return (the rest of an observation, or of a batch of them; its mask)."""
        left = observation["observation"] if self._only else {key: observation[key] for key in self._left}
        return left, observation[KEY]


class MaskFromObservation(gymnasium.Wrapper):
    """Moves the mask from the key in observations to `info["action_mask"]`."""

    def __init__(self, env: gymnasium.Env, key: MaskKey) -> None:
        super().__init__(env)
        self._key = key
        self.observation_space = key.space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        left, mask = self._key.split(observation)
        return left, {**info, KEY: mask}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        left, mask = self._key.split(observation)
        return left, reward, terminated, truncated, {**info, KEY: mask}


def masks_in_info(env: gymnasium.Env) -> gymnasium.Env:
    """Return `env`, with masks in its infos if its observations hold them."""
    key = MaskKey.of(env.observation_space, env.action_space)
    return env if key is None else MaskFromObservation(env, key)


def _counts(leaf: gymnasium.Space[Any]) -> list[int]:
    match leaf:
        case spaces.Discrete():
            return [int(leaf.n)]
        case spaces.MultiDiscrete():
            counts: list[int] = leaf.nvec.ravel().tolist()
            return counts
        case spaces.MultiBinary():
            return [2] * int(np.prod(leaf.shape))
        case _:
            return []


def _leaves(tree: Any, space: gymnasium.Space[Any] | None = None, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (leaf name, leaf) of a space, or of a value nested like `space`, with policies' names such as "hand/0"."""
    shape = tree if space is None else space
    inside = shape.spaces if isinstance(shape, spaces.Dict | spaces.Tuple) else None
    if inside is None or (space is not None and tree is None):
        yield path, tree
        return
    for key, part in inside.items() if isinstance(inside, dict) else enumerate(inside):
        if space is None:
            yield from _leaves(part, None, _under(path, key))
        elif not isinstance(tree, dict) or key in tree:
            yield from _leaves(tree[key], part, _under(path, key))


def _under(path: str, key: str | int) -> str:
    return f"{path}/{key}" if path else str(key)


def _flat(given: Any) -> np.ndarray:
    """Return numbers nested in tuples, lists and arrays as one array. Raises WrongMask."""
    try:
        if isinstance(given, tuple | list):
            return np.concatenate([_flat(part) for part in given]) if given else np.zeros(0)
        flat = np.ravel(np.asarray(given))
        if flat.dtype.kind in "biuf":
            return flat
    except (TypeError, ValueError):
        pass
    raise WrongMask(f"gave the {KEY} {_shown(given)}, which is not of numbers")


def _nested(parts: list[np.ndarray], shape: tuple[int, ...]) -> Any:
    """Return `parts` as tuples nested like an array of `shape`."""
    if len(shape) <= 1:
        return tuple(parts)
    each = len(parts) // shape[0]
    return tuple(_nested(parts[i * each : (i + 1) * each], shape[1:]) for i in range(shape[0]))


def _shown(given: Any) -> str:
    text = repr(given)
    return text if len(text) <= 80 else f"{text[:77]}..."
