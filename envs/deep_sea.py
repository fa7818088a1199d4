"""Deep Sea (Osband et al. 2020, bsuite): a game for exploration (env.id=envs.deep_sea:DeepSea, env.kwargs.size=20)."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete


class DeepSea(gymnasium.Env[np.ndarray, np.int64]):
    """A diver sinks through `size` rows, each time to the left or right; a treasure lies at the bottom right.

    Each move to the right costs 0.01 / size, and the treasure is worth 1, so all shorter ways right teach to go left.
    Random play finds it in one of 2^size episodes. Which action goes right differs from place to place, by `seed`. The
    place is observed as a one in float32 [size, size].
    """

    def __init__(self, size: int = 20, seed: int = 0) -> None:
        self.observation_space = Box(0.0, 1.0, (size, size), np.float32)
        self.action_space = Discrete(2)
        self._size, self._row, self._column = size, 0, 0
        self._right = np.random.default_rng(seed).integers(2, size=(size, size))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._row = self._column = 0
        return self._observation(), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        right = action == self._right[self._row, self._column]
        corner = self._row == self._column == self._size - 1
        reward = (1.0 if corner else 0.0) - 0.01 / self._size if right else 0.0
        self._column = min(self._column + 1, self._size - 1) if right else max(self._column - 1, 0)
        self._row += 1
        return self._observation(), reward, self._row == self._size, False, {}

    def _observation(self) -> np.ndarray:
        seen = np.zeros((self._size, self._size), np.float32)
        if self._row < self._size:
            seen[self._row, self._column] = 1.0
        return seen
