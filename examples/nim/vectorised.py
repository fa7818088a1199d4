"""Nim as arrays, N games stepped at once: the form for millions of games."""

import numpy as np

from envs import Turn, TwoPlayerVectorEnv


class Nim(TwoPlayerVectorEnv):
    def __init__(self, num_envs, seed, stones=15):
        super().__init__("nim", num_envs, (stones + 1,), 3)
        self.stones = stones
        self.left, self.player = np.full(num_envs, stones), np.zeros(num_envs, np.int8)

    def _reset(self):
        self.left[:], self.player[:] = self.stones, 0
        return self.turn(*self._no_outcome())

    def _step(self, action):
        reward, done, truncated = self._no_outcome()
        self.left = self.left - action - 1
        done[:] = self.left == 0
        over = np.flatnonzero(done)
        reward[over, self.player[over]], reward[over, 1 - self.player[over]] = 1, -1
        self.player = np.where(done, 0, 1 - self.player).astype(np.int8)  # the next game begins within the same step
        self.left = np.where(done, self.stones, self.left)
        return self.turn(reward, done, truncated)

    def turn(self, reward, done, truncated):
        observation = np.eye(self.stones + 1, dtype=np.float32)[self.left]
        return Turn(self.player.copy(), observation, np.arange(1, 4) <= self.left[:, None], reward, done, truncated)

    def text(self, index):
        """Return the game as text for `python -m workers.play`; without this method the observation is printed."""
        return f"{self.left[index]} stones are left; 0 takes one of them, 1 two, 2 three"
