"""FightingICE between two agents, for leagues: "fightingice:zen", "fightingice:zen?opponent_character=lud"."""

from __future__ import annotations

from typing import Any

import numpy as np

from envs.construct import blame
from envs.fightingice_commands import ACTIONS
from envs.fightingice_match import Match
from envs.fightingice_observation import FIELDS
from envs.two_player import PLAYERS, Turn, TwoPlayerVectorEnv


def make_two_player(name: str, num_envs: int, seed: int, /, **kwargs: Any) -> TwoPlayerVectorEnv:
    """`num_envs` games, each in a process of its own. Raises UnknownName and ConfigurationError."""
    with blame(f"environment 'fightingice:{name}'"):
        return FightingIceGames(name, num_envs, **kwargs)


class FightingIceGames(TwoPlayerVectorEnv):
    """N games. Both move at once: player 1 chooses without seeing what player 0 did.

    `rewards` is "result" where nothing else is given: what a league's payoffs are about.
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
        self._seen = np.zeros((PLAYERS, num_envs, len(FIELDS)), np.float32)
        self._first: np.ndarray | None = None  # player 0's actions, until player 1 has chosen

    def action_text(self, index: int, action: int) -> str:
        """The game's name for it."""
        return ACTIONS[action]

    def _reset(self) -> Turn:
        self._first = None
        for i, match in enumerate(self._matches):
            self._seen[:, i] = match.reset()
        return self._turn_of(0, *self._no_outcome())

    def _step(self, action: np.ndarray) -> Turn:
        reward, done, truncated = self._no_outcome()
        if self._first is None:
            self._first = action.copy()
            return self._turn_of(1, reward, done, truncated)
        first, self._first = self._first, None
        for i, moves in enumerate(zip(first.tolist(), action.tolist(), strict=True)):
            self._seen[:, i], reward[i], done[i] = self._matches[i].step(list(moves))
            if done[i]:
                self._seen[:, i] = self._matches[i].reset()
        return self._turn_of(0, reward, done, truncated)

    def _turn_of(self, player: int, reward: np.ndarray, done: np.ndarray, truncated: np.ndarray) -> Turn:
        to_move = np.full(self.num_envs, player, np.int8)
        action_mask = np.ones((self.num_envs, self.num_actions), np.bool_)
        return Turn(to_move, self._seen[player].copy(), action_mask, reward, done, truncated)

    def close(self) -> None:
        """Ends every game's process."""
        for match in self._matches:
            match.close()
