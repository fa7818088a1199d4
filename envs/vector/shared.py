"""Arrays that a vector and its worker processes share, in memory without a name, which leaves nothing behind."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector.utils import create_empty_array

from warren.trees import Tree, map_tree

RESET, STEP = b"r", b"s"  # commands to a worker process, a line each
_ALIGNED = 64  # bytes, so that no two arrays share a cache line


class SharedArrays:
    """Arrays of one step of N environments in shared memory. `fd`: that of the memory, for a child; closed here.

    observation, final_observation, action: trees of arrays [N, ...], like the spaces. reward f64 [N] or [N, C];
    terminated, truncated, life_lost bool [N]; kept_infos f64 [N, kept]; seed int64 [N], -1 for none.
    """

    def __init__(
        self,
        observation_space: gymnasium.Space[Any],
        action_space: gymnasium.Space[Any],
        num_envs: int,
        channels: int,
        choices: int = 0,
        kept: int = 0,
        fd: int | None = None,
    ) -> None:
        """`choices`: size of a mask of legal actions: action_mask bool [N, choices], and final_action_mask at
        final_observation, where masked bool [N] is True."""

        def lay_out(allocate: Callable[..., np.ndarray]) -> None:
            self.observation = create_empty_array(observation_space, num_envs, allocate)
            self.final_observation = create_empty_array(observation_space, num_envs, allocate)
            self.action = create_empty_array(action_space, num_envs, allocate)
            self.reward = allocate((num_envs, channels) if channels else num_envs, np.float64)
            self.terminated, self.truncated, self.life_lost = (allocate(num_envs, np.bool_) for _ in range(3))
            self.kept_infos = allocate((num_envs, kept), np.float64)
            self.seed = allocate(num_envs, np.int64)
            self.masked = allocate(num_envs, np.bool_)
            self.action_mask, self.final_action_mask = (
                allocate((num_envs, choices), np.bool_) if choices else np.empty((num_envs, 0), np.bool_)
                for _ in range(2)
            )

        measured = _Allocator(None)
        lay_out(measured)
        self.size = measured.used
        if fd is None:
            fd = _anonymous_file()
            os.ftruncate(fd, self.size)
        self.fd = fd
        self._map = mmap.mmap(fd, self.size)
        lay_out(_Allocator(self._map))

    def close(self) -> None:
        """Close the file; the memory is freed with the last array of the last process."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class _Allocator:
    """Returns arrays one after another from a buffer, with numpy's signature; without a buffer it only counts bytes."""

    def __init__(self, buffer: mmap.mmap | None) -> None:
        self.buffer, self.used = buffer, 0

    def __call__(self, shape: int | tuple[int, ...], dtype: Any = np.float64) -> np.ndarray:
        array = np.empty(shape, dtype)
        start, self.used = self.used, self.used + -(-array.nbytes // _ALIGNED) * _ALIGNED
        if self.buffer is None:
            return array
        return np.frombuffer(self.buffer, array.dtype, array.size, start).reshape(array.shape)


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("warren-environments")
    with tempfile.TemporaryFile() as file:  # it never has a name
        return os.dup(file.fileno())


def copy_of(tree: Tree, at: int | slice) -> Tree:
    """Return a copy of the rows `at` of each array."""
    return map_tree(lambda array: array[at].copy(), tree)
