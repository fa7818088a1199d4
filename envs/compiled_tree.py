"""Steps of games on a tree in C (game_tree.c), if it can be compiled: the same numbers in a tenth of the time."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from envs.two_player.chance import Chance
from envs.two_player.vector_env import Turn
from warren.compiled import Compiled

COMPILED = Compiled(Path(__file__).with_name("game_tree.c"), {"step": ctypes.c_int64})
TABLES = (
    ("player", np.int8), ("owner", np.int8), ("first_child", np.int32), ("information_state", np.int32),
    ("slot", np.int32), ("chance", np.int32), ("returns", np.float64), ("threshold", np.float64),
    ("observation", np.float32), ("action_mask", np.bool_),
)  # fmt: skip


class _Tree(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int64) for name in ("actions", "thresholds", "floats")),
        *((name, ctypes.c_void_p) for name, _ in TABLES),
    ]


class _Draws(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("seeds", "state", "fresh", "fresh_state")]


class CompiledTree:
    """A tree's tables, and the C function that steps games on them."""

    def __init__(self, tables: Mapping[str, np.ndarray], library: ctypes.CDLL) -> None:
        self._library = library
        self._kept = [np.ascontiguousarray(tables[name], kind) for name, kind in TABLES]  # the pointers are into these
        self._shape = tables["observation"].shape[1:]
        sizes = tables["action_mask"].shape[1], tables["threshold"].shape[1], int(np.prod(self._shape))
        self._tree = _Tree(*sizes, *map(_at, self._kept))

    @classmethod
    def of(cls, tables: Mapping[str, np.ndarray]) -> CompiledTree | None:
        """Return the compiled form of a GameTree's TABLES; None if nothing compiles or observations are not float32."""
        library = COMPILED.library()
        return None if library is None or tables["observation"].dtype != np.float32 else cls(tables, library)

    def step(self, action: np.ndarray, nodes: np.ndarray, chance: Chance) -> Turn:
        """Make the legal moves `action` int64 [N]; advance `nodes` int64 [N] and `chance` to the next decisions."""
        games, actions = len(nodes), self._tree.actions
        fresh = chance.fresh(games)
        to_move, flags = np.empty(games, np.int8), np.zeros((2, games), np.bool_)
        observation = np.empty((games, *self._shape), np.float32)
        mask, reward = np.empty((games, actions), np.bool_), np.empty((games, 2), np.float32)
        draws = _Draws(*map(_at, (chance.seeds, chance.state, *fresh)))
        arrays = np.ascontiguousarray(action, np.int64), nodes, to_move, observation, mask, reward, flags[0]
        pointers = (ctypes.c_void_p(_at(array)) for array in arrays)
        begun = self._library.step(ctypes.byref(self._tree), ctypes.byref(draws), ctypes.c_int64(games), *pointers)
        chance.begun(begun)
        return Turn(to_move, observation, mask, reward, flags[0], flags[1])


def _at(array: np.ndarray) -> int:
    place: int = array.ctypes.data
    return place
