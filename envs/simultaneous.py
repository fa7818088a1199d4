"""Games of two players who move at once, as turns: the second chooses without seeing what the first did."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from envs.two_player import PLAYERS, Turn, TwoPlayerVectorEnv


class SimultaneousGames(TwoPlayerVectorEnv):
    """N games of which subclasses say how one begins, `_begin`, and what both players' actions do in it, `_move`."""

    def __init__(
        self, name: str, num_envs: int, observation_shape: tuple[int, ...], num_actions: int, *, images: bool = False
    ) -> None:
        super().__init__(name, num_envs, observation_shape, num_actions, images=images)
        # What each player sees.
        self._seen = np.zeros((PLAYERS, num_envs, *observation_shape), self.single_observation_space.dtype)
        self._to_move = [np.full(num_envs, player, np.int8) for player in range(PLAYERS)]
        self._any = np.ones((num_envs, num_actions), np.bool_)  # every action is legal
        self._first: np.ndarray | None = None  # the first player's actions, until the second has chosen

    @abstractmethod
    def _begin(self, i: int) -> None:
        """Begin game `i` anew; what both see goes to `_seen[:, i]`."""

    @abstractmethod
    def _move(self, i: int, actions: tuple[int, int]) -> tuple[np.ndarray, bool, bool]:
        """Both actions in game `i`: (rewards float32 [2], whether it is over, whether it was cut off).

        What both see then goes to `_seen[:, i]`, unless the game is over.
        """

    def _reset(self) -> Turn:
        self._first = None
        for i in range(self.num_envs):
            self._begin(i)
        return self._turn_of(0, *self._no_outcome())

    def _step(self, action: np.ndarray) -> Turn:
        reward, done, truncated = self._no_outcome()
        if self._first is None:
            self._first = action.copy()
            return self._turn_of(1, reward, done, truncated)
        first, self._first = self._first, None
        for i, (one, other) in enumerate(zip(first.tolist(), action.tolist(), strict=True)):
            reward[i], done[i], truncated[i] = self._move(i, (one, other))
            if done[i]:
                self._begin(i)
        return self._turn_of(0, reward, done, truncated)

    def _turn_of(self, player: int, reward: np.ndarray, done: np.ndarray, truncated: np.ndarray) -> Turn:
        to_move, action_mask = self._to_move[player].copy(), self._any.copy()
        return Turn(to_move, self._seen[player].copy(), action_mask, reward, done, truncated)
