"""Many copies of one environment stepped as one: gymnasium's SyncVectorEnv with episode statistics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv


class VectorEnv(SyncVectorEnv):
    """Steps `num_envs` environments in this process; one that ends is reset within the same step.

    Where `terminated | truncated`, the observation returned is the next episode's first, and the ended episode's last
    one is `info["final_obs"][i]`: what the value of a truncated episode is bootstrapped from.
    """

    def __init__(self, env_fns: Sequence[Callable[[], gymnasium.Env]], seed: int | None = None) -> None:
        super().__init__(env_fns, autoreset_mode=AutoresetMode.SAME_STEP)
        self._seed = seed
        self._returns = np.zeros(self.num_envs, np.float64)
        self._lengths = np.zeros(self.num_envs, np.int64)
        self._finished: list[np.ndarray] = []

    def reset(self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None) -> Any:
        """As gymnasium's; the first call without a seed takes the constructor's (copy i gets `seed + i`)."""
        if seed is None:
            seed = self._seed
        self._seed = None
        mask = (options or {}).get("reset_mask", slice(None))
        result = super().reset(seed=seed, options=options)
        self._returns[mask] = 0
        self._lengths[mask] = 0
        return result

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """observation [N, ...], reward f64 [N], terminated bool [N], truncated bool [N], info."""
        result = super().step(actions)
        self._returns += result[1]
        self._lengths += 1
        done = result[2] | result[3]
        if done.any():
            self._finished.append(np.stack([self._returns[done], self._lengths[done]], axis=1))
            self._returns[done] = 0
            self._lengths[done] = 0
        return result

    def pop_episodes(self) -> np.ndarray:
        """float32 [K, 2]: return and length of every episode finished since the last call, in order of finishing."""
        finished, self._finished = self._finished, []
        return np.concatenate(finished).astype(np.float32) if finished else np.zeros((0, 2), np.float32)
