"""Google Research Football between two agents, for leagues: "football:11_vs_11_stochastic", "football:1_vs_1_easy"."""

from __future__ import annotations

from typing import Any

import numpy as np

from envs.construct import blame
from envs.football_match import Match
from envs.two_player import PLAYERS, Turn, TwoPlayerVectorEnv
from warren.errors import ConfigurationError


def make_two_player(name: str, num_envs: int, seed: int, /, **kwargs: Any) -> TwoPlayerVectorEnv:
    """`num_envs` matches of the scenario `name`. Raises UnknownName and ConfigurationError."""
    if kwargs.get("rewards", "scoring") != "scoring":
        raise ConfigurationError(
            f"environment 'football:{name}': rewards={kwargs['rewards']!r} are not zero-sum; of two agents take scoring"
        )
    with blame(f"environment 'football:{name}'"):
        return FootballGames(name, num_envs, seed, **kwargs)


class FootballGames(TwoPlayerVectorEnv):
    """N matches, player 0 on the left. Both move at once: player 1 chooses without seeing what player 0 did.

    A match that its clock ends is decided, as football is: `truncated` is never set.
    """

    def __init__(self, name: str, num_envs: int, seed: int, **kwargs: Any) -> None:
        self._matches = [Match(name, PLAYERS, **kwargs) for _ in range(num_envs)]
        self._chance = [np.random.default_rng([seed, i]) for i in range(num_envs)]
        space = self._matches[0].observation_space
        super().__init__(f"football:{name}", num_envs, space.shape, len(self._matches[0].actions))
        self._seen = np.zeros((PLAYERS, num_envs, *space.shape), np.float32)
        self._first: np.ndarray | None = None  # player 0's actions, until player 1 has chosen

    def action_text(self, index: int, action: int) -> str:
        """The library's name for it."""
        return self._matches[index].actions[action]

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
        for i, moves in enumerate(zip(first.tolist(), action.tolist(), strict=True)):
            self._seen[:, i], reward[i], done[i], _ = self._matches[i].step(list(moves))
            if done[i]:
                self._begin(i)
        return self._turn_of(0, reward, done, truncated)

    def _begin(self, i: int) -> None:
        self._seen[:, i] = self._matches[i].reset(int(self._chance[i].integers(1 << 31)))

    def _turn_of(self, player: int, reward: np.ndarray, done: np.ndarray, truncated: np.ndarray) -> Turn:
        to_move = np.full(self.num_envs, player, np.int8)
        action_mask = np.ones((self.num_envs, self.num_actions), np.bool_)
        return Turn(to_move, self._seen[player].copy(), action_mask, reward, done, truncated)

    def close(self) -> None:
        """Closes every match."""
        for match in self._matches:
            match.close()
