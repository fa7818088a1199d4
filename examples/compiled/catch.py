"""Catch, written in C and stepped as a vector: `python -m workers.train env.id=examples/compiled/catch.py:Catch`."""

import ctypes
from pathlib import Path

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from warren.compiled import Compiled

LIBRARY = Compiled(Path(__file__).with_name("catch.c"), {"begin": None, "step": None})  # built at the first use
SHAPE = (10, 5)


def at(array):
    return ctypes.c_void_p(array.ctypes.data)


class Catch(gymnasium.vector.VectorEnv):
    """Games of nine steps; each gives 1 for a ball that was caught, else -1."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}

    def __init__(self, num_envs):
        self.num_envs, self.library = num_envs, LIBRARY.library()
        if self.library is None:
            raise RuntimeError(LIBRARY.lacking())
        self.single_observation_space = gymnasium.spaces.Box(0, 1, SHAPE, np.float32)
        self.single_action_space = gymnasium.spaces.Discrete(3)
        self.games = np.zeros((num_envs, 3), np.int32)
        self.chance = [np.random.default_rng() for _ in range(num_envs)]

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self.chance = [np.random.default_rng(one) for one in seed]
        seen = np.empty((self.num_envs, *SHAPE), np.float32)
        self.library.begin(at(self.games), ctypes.c_int64(self.num_envs), at(self.balls(True)), at(seen))
        return seen, {}

    def step(self, actions):
        n, actions = self.num_envs, np.ascontiguousarray(actions, np.int64)
        seen, last = np.empty((2, n, *SHAPE), np.float32)
        reward, over = np.empty(n), np.empty(n, np.bool_)
        arrays = actions, self.balls(self.games[:, 0] == SHAPE[0] - 2), seen, last, reward, over
        self.library.step(at(self.games), ctypes.c_int64(n), *map(at, arrays))
        final = np.empty(n, object)
        for game in np.flatnonzero(over):
            final[game] = last[game]
        return seen, reward, over, np.zeros(n, np.bool_), {"final_obs": final} if over.any() else {}

    def balls(self, needed):
        """Return the cells of the next balls, int32 [N]: each copy draws its own; 0 for copies that need none."""
        drawn = zip(self.chance, np.broadcast_to(needed, self.num_envs), strict=True)
        return np.array([one.integers(SHAPE[1]) if new else 0 for one, new in drawn], np.int32)
