"""Google Research Football between two agents, for leagues: "football:11_vs_11_stochastic", "football:1_vs_1_easy"."""

from __future__ import annotations

from typing import Any

import numpy as np

from envs.construct import blame
from envs.football.match import Match
from envs.two_player.chance import Chance
from envs.two_player.simultaneous import SimultaneousGames
from envs.two_player.vector_env import PLAYERS, TwoPlayerVectorEnv
from warren.errors import ConfigurationError


def make_two_player(name: str, num_envs: int, seed: int, /, **kwargs: Any) -> TwoPlayerVectorEnv:
    """Return `num_envs` matches of the scenario `name`. Raises UnknownName and ConfigurationError."""
    if kwargs.get("rewards", "scoring") != "scoring":
        raise ConfigurationError(
            f"environment 'football:{name}': rewards={kwargs['rewards']!r} are not zero-sum; of two agents take scoring"
        )
    with blame(f"environment 'football:{name}'"):
        return FootballGames(name, num_envs, seed, **kwargs)


class FootballGames(SimultaneousGames):
    """N matches, player 0 on the left.

    A match that the clock ends has a result, as in football, so `truncated` is never set.
    """

    chance: Chance

    def __init__(self, name: str, num_envs: int, seed: int, **kwargs: Any) -> None:
        self._matches = [Match(name, PLAYERS, **kwargs) for _ in range(num_envs)]
        self.chance = Chance(num_envs, seed)
        space = self._matches[0].observation_space
        images = space.dtype == np.uint8
        super().__init__(f"football:{name}", num_envs, space.shape, len(self._matches[0].actions), images=images)

    def action_text(self, index: int, action: int) -> str:
        """Return the library's name for `action`."""
        return self._matches[index].actions[action]

    def _begin(self, i: int) -> None:
        self.chance.begin(self._rows[i : i + 1])
        self._seen[:, i] = self._matches[i].reset(int(self.chance.seeds[i]) % (1 << 31))

    def _move(
        self, first: list[int], second: list[int], reward: np.ndarray, done: np.ndarray, truncated: np.ndarray
    ) -> None:
        for i, both in enumerate(zip(first, second, strict=True)):
            self._seen[:, i], reward[i], done[i], _ = self._matches[i].step(list(both))

    def picture(self, index: int) -> np.ndarray:
        """Return the pitch from above."""
        return self._matches[index].picture()

    def close(self) -> None:
        """Close every match."""
        for match in self._matches:
            match.close()
