"""Chance of many games, each from a seed of its own: any of them can be played again by itself.

What is drawn is computed from the game's seed and the number of the draw, by SplitMix64 (Steele, Lea and Flood 2014,
"Fast splittable pseudorandom number generators"), so it is the same alone and among any others.
"""

from __future__ import annotations

import numpy as np

GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # the increment of SplitMix64
OF_GAME, OF_DECISIONS = np.uint64(1), np.uint64(2)  # streams of one seed: cards and dice, and what players draw by


class Chance:
    """Of N games; a game that uses it calls `begin` where one begins, and `uniform` for all that chance decides.

    seeds   int64 [N], at least 0: of the games under way.
    given   seeds of the games that begin next, in place of new ones; None: new ones.
    """

    def __init__(self, num_envs: int, seed: int) -> None:
        self.seeds = np.zeros(num_envs, np.int64)
        self.given: np.ndarray | None = None
        self._drawn = np.zeros(num_envs, np.uint64)
        self._root = _mixed(np.array([seed], np.uint64))
        self._begun = 0

    def begin(self, rows: np.ndarray) -> None:
        """The games `rows` int64 [K] begin anew."""
        if self.given is not None:
            self.seeds[rows] = self.given[rows]
        else:
            numbers = np.arange(self._begun, self._begun + len(rows), dtype=np.uint64)
            self.seeds[rows] = (_mixed(self._root + numbers * GOLDEN) >> np.uint64(1)).astype(np.int64)
            self._begun += len(rows)
        self._drawn[rows] = 0

    def uniform(self, rows: np.ndarray) -> np.ndarray:
        """float64 [K] within (0, 1): the next draw of each of the games `rows` int64 [K]."""
        drawn = self._drawn[rows]
        self._drawn[rows] = drawn + np.uint64(1)
        return _uniform(_keys(self.seeds[rows], OF_GAME), drawn)


def decision_noise(seeds: np.ndarray, moves: np.ndarray, num_actions: int) -> np.ndarray:
    """float32 [K, num_actions], exponentially distributed: by what move number `moves` [K] of games with these seeds
    int64 [K] is drawn (Policy.step, `noise`).
    """
    numbers = moves.astype(np.uint64)[:, None] * np.uint64(num_actions) + np.arange(num_actions, dtype=np.uint64)
    noise: np.ndarray = -np.log(_uniform(_keys(seeds, OF_DECISIONS)[:, None], numbers))
    return noise.astype(np.float32)


def _keys(seeds: np.ndarray, stream: np.uint64) -> np.ndarray:
    keys: np.ndarray = _mixed(seeds.astype(np.uint64) * np.uint64(2) + stream)
    return keys


def _uniform(keys: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    bits = _mixed(keys + (numbers + np.uint64(1)) * GOLDEN) >> np.uint64(11)
    uniform: np.ndarray = (bits + 0.5) * 2.0**-53
    return uniform


def _mixed(state: np.ndarray) -> np.ndarray:
    """SplitMix64's output function, of uint64 arrays."""
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: np.ndarray = state ^ (state >> np.uint64(31))
    return mixed
