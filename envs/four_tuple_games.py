"""Two-player games that were written for old gym: `step(action, other_action)` moves both, as slimevolleygym's does.

class SlimeVolley(FourTupleGame):
    actions = SlimeVolleyEnv.action_table

    def make(self):
        return SlimeVolleyEnv()

    def second_observation(self, env, observation):
        return env.game.agent_left.getObservation()

python -m workers.train league=mine league.env=path/to/file.py:SlimeVolley
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from envs.two_player import Turn, TwoPlayerVectorEnv


class FourTupleGame(TwoPlayerVectorEnv):
    """N games whose `step(first, second)` gives (observation, reward, done, info), all of the first player.

    `info["otherObs"]` is the second player's observation, of the same shape; its reward is the first one's negative.
    Both move at once: the second chooses without seeing what the first did. `actions[i]` is what the environment is
    given for action i. Each copy is seeded by its `seed` method, where it has one, at the first reset.
    """

    actions: Sequence[Any]

    def __init__(self, num_envs: int, seed: int) -> None:
        self._envs = [self.make() for _ in range(num_envs)]
        self._seeds: list[int | None] = [seed + i for i in range(num_envs)]
        shape = tuple(self._envs[0].observation_space.shape)
        super().__init__(type(self).__name__, num_envs, shape, len(self.actions))
        self._seen = np.zeros((2, num_envs, *shape), np.float32)  # what each player sees
        self._first: np.ndarray | None = None  # the first player's moves, until the second has chosen

    @abstractmethod
    def make(self) -> Any:
        """One copy of the environment."""

    @abstractmethod
    def second_observation(self, env: Any, observation: Any) -> Any:
        """What the second player sees at a game's beginning, where the first sees `observation`."""

    def _reset(self) -> Turn:
        self._first = None
        for i in range(self.num_envs):
            self._start(i)
        return self._turn_of(0, *self._no_outcome())

    def _step(self, action: np.ndarray) -> Turn:
        reward, done, truncated = self._no_outcome()
        if self._first is None:
            self._first = action.copy()
            return self._turn_of(1, reward, done, truncated)
        first, self._first = self._first, None
        for i, (env, mine, other) in enumerate(zip(self._envs, first.tolist(), action.tolist(), strict=True)):
            observation, won, ended, info = env.step(self.actions[mine], self.actions[other])
            reward[i] = won, -won
            if ended:
                done[i], truncated[i] = True, bool(info.get("TimeLimit.truncated", False))
                self._start(i)
            else:
                self._seen[0, i], self._seen[1, i] = observation, info["otherObs"]
        return self._turn_of(0, reward, done, truncated)

    def _start(self, i: int) -> None:
        env = self._envs[i]
        if self._seeds[i] is not None and hasattr(env, "seed"):
            env.seed(self._seeds[i])
        self._seeds[i] = None
        observation = env.reset()
        self._seen[0, i], self._seen[1, i] = observation, self.second_observation(env, observation)

    def _turn_of(self, player: int, reward: np.ndarray, done: np.ndarray, truncated: np.ndarray) -> Turn:
        to_move = np.full(self.num_envs, player, np.int8)
        action_mask = np.ones((self.num_envs, self.num_actions), np.bool_)
        return Turn(to_move, self._seen[player].copy(), action_mask, reward, done, truncated)

    def close(self) -> None:
        """Closes every copy."""
        for env in self._envs:
            env.close()
