"""Random numbers of many games, each from a seed of its own, so that any game can be played again by itself.

A draw is computed from the game's seed and the draw's number by SplitMix64 (Steele, Lea and Flood 2014, "Fast
splittable pseudorandom number generators"). So a game has the same draws alone and among any other games.
"""

from __future__ import annotations

import numpy as np

GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # the increment of SplitMix64
FIRST, SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)  # its multipliers
MASK = (1 << 64) - 1
FRESH = 1024  # seeds made at once; more if more games begin at once
OF_GAME, OF_DECISIONS = np.uint64(1), np.uint64(2)  # streams of one seed: cards and dice; players' draws of actions


class Chance:
    """The chance of N games; a game calls `begin` when one begins, and `uniform` for all that chance decides.

    seeds   int64 [N], at least 0: those of the games under way.
    state   uint64 [N]: SplitMix64's state of each.
    given   seeds of the games that begin next, in place of new ones; None: new ones.
    """

    def __init__(self, num_envs: int, seed: int) -> None:
        self.seeds = np.zeros(num_envs, np.int64)
        self.given: np.ndarray | None = None
        self.state = np.zeros(num_envs, np.uint64)
        self._root = _mixed(np.array([seed], np.uint64))
        self._made = 0  # number of seeds made so far
        self._fresh, self._fresh_state = np.zeros(0, np.int64), np.zeros(0, np.uint64)  # the seeds made last
        self._next = 0  # index of the first of these from which no game has begun

    def begin(self, rows: np.ndarray) -> None:
        """Begin the games `rows` int64 [K] anew."""
        if self.given is not None:
            self.seeds[rows] = seeds = self.given[rows]
            self.state[rows] = _keys(seeds, OF_GAME)
            return
        seeds, states = self.fresh(len(rows))
        self.seeds[rows], self.state[rows] = seeds[: len(rows)], states[: len(rows)]
        self.begun(len(rows))

    def fresh(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return (seeds, states) for at least `count` games to begin next; report how many did to `begun`."""
        if self._next + count > len(self._fresh):
            self._make(FRESH + count)
        return self._fresh[self._next :], self._fresh_state[self._next :]

    def begun(self, count: int) -> None:
        """Count games that have begun from the first of the `fresh` seeds."""
        self._next += count

    def uniform(self, rows: np.ndarray) -> np.ndarray:
        """Return the next draw of each of the games `rows` int64 [K], float64 [K] within (0, 1)."""
        self.state[rows] = state = self.state[rows] + GOLDEN
        return _uniform(state)

    def draw(self, index: int) -> float:
        """Return the next draw of game `index` alone, ten times as fast as `uniform`."""
        state = int(self.state[index]) + int(GOLDEN) & MASK
        self.state[index] = state
        return ((_mixed_number(state) >> 11) + 0.5) * 2.0**-53

    def _make(self, count: int) -> None:
        numbers = np.arange(self._made, self._made + count, dtype=np.uint64)
        made = (_mixed(self._root + numbers * GOLDEN) >> np.uint64(1)).astype(np.int64)
        self._fresh, self._next = np.concatenate([self._fresh[self._next :], made]), 0
        self._fresh_state = _keys(self._fresh, OF_GAME)
        self._made += count


def decision_noise(seeds: np.ndarray, moves: np.ndarray, num_actions: int) -> np.ndarray:
    """Return float32 [K, num_actions], exponentially distributed: the noise by which move number `moves` [K] of games
    with these seeds int64 [K] is drawn (Policy.step, `noise`).
    """
    numbers = moves.astype(np.uint64)[:, None] * np.uint64(num_actions) + np.arange(num_actions, dtype=np.uint64)
    noise: np.ndarray = -np.log(_uniform(_keys(seeds, OF_DECISIONS)[:, None] + (numbers + np.uint64(1)) * GOLDEN))
    return noise.astype(np.float32)


def _keys(seeds: np.ndarray, stream: np.uint64) -> np.ndarray:
    keys: np.ndarray = _mixed(seeds.astype(np.uint64) * np.uint64(2) + stream)
    return keys


def _uniform(state: np.ndarray) -> np.ndarray:
    uniform: np.ndarray = ((_mixed(state) >> np.uint64(11)) + 0.5) * 2.0**-53
    return uniform


def _mixed(state: np.ndarray) -> np.ndarray:
    """Return SplitMix64's output function of uint64 arrays."""
    state = (state ^ (state >> np.uint64(30))) * FIRST
    state = (state ^ (state >> np.uint64(27))) * SECOND
    mixed: np.ndarray = state ^ (state >> np.uint64(31))
    return mixed


def _mixed_number(state: int) -> int:
    """Return SplitMix64's output function of one number of 64 bits."""
    state = (state ^ (state >> 30)) * int(FIRST) & MASK
    state = (state ^ (state >> 27)) * int(SECOND) & MASK
    return state ^ (state >> 31)
