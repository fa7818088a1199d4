"""One-shot games with exactly known payoffs, the smallest things a league can be run on: "matrix:spinning_top".

Both players choose one of n strategies at once; row against column pays M[row, column] in [-1, 1] to the first, its
negative to the second. Each game ends in a win, a loss or a draw, so that counts of results agree with payoffs: with
probability |M| the player that M favours wins one point, otherwise it is a draw; the expected reward is M.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from envs.construct import blame
from envs.sequence_form import SequenceForm
from envs.two_player.chance import Chance
from envs.two_player.vector_env import Turn, TwoPlayerVectorEnv
from warren.errors import ConfigurationError
from warren.registry import Registry

FAMILIES: Registry[Callable[..., np.ndarray]] = Registry("matrix game")


def make_two_player(name: str, num_envs: int, seed: int, /, **parameters: Any) -> TwoPlayerVectorEnv:
    """Return `num_envs` games of the family `name`. Raises UnknownName, ConfigurationError."""
    return MatrixVectorEnv(f"matrix:{name}", payoffs(name, **parameters), num_envs, seed)


def payoffs(name: str, /, **parameters: Any) -> np.ndarray:
    """Return the exact payoffs of the first player, float64 [n, m]. Raises UnknownName, ConfigurationError."""
    family = FAMILIES[name]
    with blame(f"environment 'matrix:{name}' with parameters {parameters}"):
        matrix = np.asarray(family(**parameters), np.float64)
        if matrix.ndim != 2 or 0 in matrix.shape or not np.isfinite(matrix).all() or np.abs(matrix).max() > 1:
            raise ConfigurationError(
                f"environment 'matrix:{name}': payoffs {list(matrix.shape)} must be a matrix of numbers "
                "within [-1, 1]; divide them by the largest"
            )
    return matrix


def sequence_form(name: str, /, **parameters: Any) -> SequenceForm:
    """Return the game in sequence form: one information state per player, n x m ends."""
    matrix = payoffs(name, **parameters)
    rows, columns = np.indices(matrix.shape)
    observation, action_mask = _tables(matrix)
    return SequenceForm(
        name=f"matrix:{name}",
        owner=np.array([0, 1], np.int8),
        observation=observation,
        action_mask=action_mask,
        labels=["row", "column"],
        parent_sequence=np.zeros(2, np.int64),
        terminal_sequence=np.stack([1 + rows.ravel(), 1 + columns.ravel()]),
        terminal_payoff=matrix.ravel(),
    )


def _tables(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (observation float32 [2, S], action_mask bool [2, A]) of the two players.

    In a symmetric game (M = -M^T) both seats get the same observation: learning in one then serves in both.
    """
    symmetric = matrix.shape[0] == matrix.shape[1] and np.array_equal(matrix, -matrix.T)
    observation = np.ones((2, 1), np.float32) if symmetric else np.eye(2, dtype=np.float32)
    action_mask = np.arange(max(matrix.shape)) < np.array(matrix.shape)[:, None]
    return observation, action_mask


class MatrixVectorEnv(TwoPlayerVectorEnv):
    """N one-shot games in step: player 0 chooses, then player 1 without seeing that, and the game is over."""

    max_return = 1.0
    chance: Chance

    def __init__(self, name: str, matrix: np.ndarray, num_envs: int, seed: int) -> None:
        self._observation, self._action_mask = _tables(matrix)
        super().__init__(name, num_envs, self._observation.shape[1:], self._action_mask.shape[1])
        self._matrix = matrix
        self.chance = Chance(num_envs, seed)
        self._row: np.ndarray | None = None  # player 0's choices, int64 [N], until player 1 has chosen

    def _reset(self) -> Turn:
        self._row = None
        self.chance.begin(self._rows)
        return self._turn_of(0, *self._no_outcome())

    def _step(self, action: np.ndarray) -> Turn:
        reward, done, truncated = self._no_outcome()
        if self._row is None:
            self._row = action.copy()
            return self._turn_of(1, reward, done, truncated)
        payoff = self._matrix[self._row, action]
        self._row = None
        decided = self.chance.uniform(self._rows) < np.abs(payoff)
        reward[:, 0] = np.where(decided, np.sign(payoff), 0.0)
        reward[:, 1] = -reward[:, 0]
        done[:] = True
        self.chance.begin(self._rows)
        return self._turn_of(0, reward, done, truncated)

    def _turn_of(self, player: int, reward: np.ndarray, done: np.ndarray, truncated: np.ndarray) -> Turn:
        everyone = np.full(self.num_envs, player, np.int8)
        return Turn(everyone, self._observation[everyone], self._action_mask[everyone], reward, done, truncated)


@FAMILIES.register("rps")
def rps() -> np.ndarray:
    """Return rock, paper, scissors; the equilibrium is (1/3, 1/3, 1/3)."""
    return cyclic(3)


@FAMILIES.register("biased_rps")
def biased_rps() -> np.ndarray:
    """Return OpenSpiel's matrix_brps over 50; the equilibrium is (1/16, 10/16, 5/16)."""
    return np.array([[0, -25, 50], [25, 0, -5], [-50, 5, 0]]) / 50


@FAMILIES.register("cyclic")
def cyclic(size: int = 5) -> np.ndarray:
    """Return a ring in which strategy i beats the (size - 1) // 2 before it and loses to as many after it."""
    if size < 3:
        raise ConfigurationError(f"size={size} of matrix game 'cyclic' must be at least 3")
    ahead = (np.arange(size)[:, None] - np.arange(size)) % size
    reach = (size - 1) // 2
    return ((ahead >= 1) & (ahead <= reach)).astype(np.float64) - (ahead >= size - reach)


@FAMILIES.register("disc")
def disc(size: int = 12) -> np.ndarray:
    """Return the disc game of Balduzzi et al. (2019) on its rim: v^T [[0, -1], [1, 0]] w for `size` directions v, w."""
    angle = 2 * np.pi * np.arange(size) / size
    return _antisymmetric(np.sin(angle[:, None] - angle))


@FAMILIES.register("elo")
def elo(size: int = 32, noise: float = 0.5, spread: float = 4.0, seed: int = 0) -> np.ndarray:
    """Return Elo game + noise (Czarnecki et al. 2020): tanh of half the rating difference, and antisymmetric Gaussians.

    `spread` is that of the ratings, in units of 400 / ln 10 Elo points; payoffs are scaled into [-1, 1] if needed.
    """
    generator = np.random.default_rng(seed)
    rating = np.linspace(0, spread, size)
    noises = noise * generator.normal(size=(size, size))
    matrix = _antisymmetric(np.tanh((rating[:, None] - rating) / 2) + noises)
    return np.asarray(matrix / max(1.0, np.abs(matrix).max()))


@FAMILIES.register("skill")
def skill(size: int = 32, transitivity: float = 1.0, seed: int = 0) -> np.ndarray:
    """Return a random game of skill (Czarnecki et al. 2020): (W_ij - W_ji) / 2 + S_i - S_j.

    W ~ N(0, 1) and S ~ N(0, transitivity); the result is scaled so that the largest payoff is 1.
    """
    generator = np.random.default_rng(seed)
    strength = transitivity * generator.normal(size=size)
    matrix = _antisymmetric(generator.normal(size=(size, size)) + 2 * strength[:, None])
    return np.asarray(matrix / np.abs(matrix).max())


@FAMILIES.register("spinning_top")
def spinning_top(layers: int = 8, width: int = 9, cycles: float = 0.5, tip: float = 0.8) -> np.ndarray:
    """Return a spinning top (Czarnecki et al. 2020): layers of rising strength, each a ring of strategies in cycles.

    The rings are widest a third of the way up (`width` strategies) and narrow to 3 at the bottom and at the top, where
    their radius is `tip` instead of 1. Strategy x of strength s, radius r and angle a is paid against y
        (1 - cycles) tanh(3 (s_x - s_y)) + cycles r_x r_y sin(a_x - a_y),
    so that the one equilibrium plays the three strategies of the top ring alike. Each of them alone can be exploited by
    at least cycles tip^2 sin(60 degrees). Strategies are numbered from the bottom up.
    """
    if layers < 2 or width < 3 or not 0 < cycles < 1 or not 0 < tip <= 1:
        raise ConfigurationError(
            f"matrix game 'spinning_top': layers={layers} must be at least 2, width={width} at least 3, "
            f"cycles={cycles} between 0 and 1, tip={tip} above 0 and at most 1"
        )
    strength, radius, angle = [], [], []
    for height in np.linspace(0, 1, layers):
        fullness = float(np.interp(height, [0, 1 / 3, 1], [0, 1, 0]))
        ring = 3 + 2 * round(fullness * (width - 3) / 2)
        strength += [height] * ring
        radius += [tip + (1 - tip) * fullness] * ring
        angle += list(2 * np.pi * np.arange(ring) / ring)
    s, r, a = np.array(strength), np.array(radius), np.array(angle)
    matrix = (1 - cycles) * np.tanh(3 * (s[:, None] - s)) + cycles * np.outer(r, r) * np.sin(a[:, None] - a)
    return _antisymmetric(matrix)


@FAMILIES.register("payoffs")
def given(matrix: Any) -> np.ndarray:
    """Return a user's matrix, [n, m] within [-1, 1]; symmetric (M = -M^T) or not."""
    return np.array(matrix, np.float64)


def _antisymmetric(matrix: np.ndarray) -> np.ndarray:
    """Return (M - M^T) / 2, which is antisymmetric to the last bit in spite of rounding."""
    return np.asarray((matrix - matrix.T) / 2)
