"""Games of two players that move at once, as turns: the second chooses without seeing the first's action."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from envs.two_player.vector_env import PLAYERS, Turn, TwoPlayerVectorEnv


class SimultaneousGames(TwoPlayerVectorEnv):
    """N games; a subclass begins one in `_begin` and makes both players' actions in all games in `_move`."""

    all_legal = True

    def __init__(
        self, name: str, num_envs: int, observation_shape: tuple[int, ...], num_actions: int, *, images: bool = False
    ) -> None:
        super().__init__(name, num_envs, observation_shape, num_actions, images=images)
        # Each player's observation.
        self._seen = np.zeros((PLAYERS, num_envs, *observation_shape), self.single_observation_space.dtype)
        self.__to_move = [np.full(num_envs, player, np.int8) for player in range(PLAYERS)]
        self.__any = np.ones((num_envs, num_actions), np.bool_)
        self.__first: list[int] | None = None  # the first player's actions, until the second has chosen

    @abstractmethod
    def _begin(self, i: int) -> None:
        """Begin game `i` anew; write both players' observations to `_seen[:, i]`."""

    @abstractmethod
    def _move(
        self, first: list[int], second: list[int], reward: np.ndarray, done: np.ndarray, truncated: np.ndarray
    ) -> None:
        """Make both players' actions, [N] each. The arrays are a Turn's, all zero: write to them what happened.

        Write both players' next observations to `_seen[:, i]`, unless game `i` is over: it is begun anew after this.
        """

    def _reset(self) -> Turn:
        self.__first = None
        for i in range(self.num_envs):
            self._begin(i)
        return self.__turn_of(0, *self._no_outcome())

    def _step(self, action: np.ndarray) -> Turn:
        reward, done, truncated = self._no_outcome()
        if self.__first is None:
            self.__first = action.tolist()
            return self.__turn_of(1, reward, done, truncated)
        first, self.__first = self.__first, None
        self._move(first, action.tolist(), reward, done, truncated)
        for i in done.nonzero()[0].tolist():
            self._begin(i)
        return self.__turn_of(0, reward, done, truncated)

    def __turn_of(self, player: int, reward: np.ndarray, done: np.ndarray, truncated: np.ndarray) -> Turn:
        to_move, action_mask = self.__to_move[player].copy(), self.__any.copy()
        return Turn(to_move, self._seen[player].copy(), action_mask, reward, done, truncated)
