"""FightingICE between two agents, for leagues: "fightingice:zen", "fightingice:zen?opponent_character=lud"."""

from __future__ import annotations

from typing import Any

import numpy as np

from envs.construct import blame
from envs.fightingice.commands import ACTIONS
from envs.fightingice.match import Match, step_together
from envs.fightingice.observation import FIELDS
from envs.two_player.simultaneous import SimultaneousGames
from envs.two_player.vector_env import TwoPlayerVectorEnv


def make_two_player(name: str, num_envs: int, seed: int, /, **kwargs: Any) -> TwoPlayerVectorEnv:
    """Return `num_envs` games, each in a process of its own. Raises UnknownName and ConfigurationError."""
    with blame(f"environment 'fightingice:{name}'"):
        return FightingIceGames(name, num_envs, **kwargs)


class FightingIceGames(SimultaneousGames):
    """N games.

    `rewards` is "result" by default, which is what a league's payoffs are about.
    """

    def __init__(self, name: str, num_envs: int, rewards: str = "result", **kwargs: Any) -> None:
        super().__init__(f"fightingice:{name}", num_envs, (len(FIELDS),), len(ACTIONS))
        self._matches: list[Match] = []
        try:
            for _ in range(num_envs):
                self._matches.append(Match(name, None, rewards=rewards, **kwargs))
        except BaseException:
            self.close()
            raise
        self.max_return = 1.0 if rewards == "result" else None

    def action_text(self, index: int, action: int) -> str:
        """Return the game's name for `action`."""
        return ACTIONS[action]

    def _begin(self, i: int) -> None:
        self._seen[:, i] = self._matches[i].reset()

    def _move(
        self, first: list[int], second: list[int], reward: np.ndarray, done: np.ndarray, truncated: np.ndarray
    ) -> None:
        steps = step_together(self._matches, [list(both) for both in zip(first, second, strict=True)])
        for i, step in enumerate(steps):
            self._seen[:, i], reward[i], done[i] = step.observations, step.rewards, step.over

    def close(self) -> None:
        """End every game's process."""
        for match in self._matches:
            match.close()
