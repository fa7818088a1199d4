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

from envs.two_player.simultaneous import SimultaneousGames


class FourTupleGame(SimultaneousGames):
    """N games whose `step(first, second)` gives (observation, reward, done, info), all of the first player.

    `info["otherObs"]` is the second player's observation, of the same shape; its reward is the first one's negative.
    Both move at once: the second chooses without seeing the first's action. `actions[i]` is passed to the environment
    for action i. Each copy is seeded by its `seed` method, if it has one, at the first reset.
    """

    actions: Sequence[Any]

    def __init__(self, num_envs: int, seed: int) -> None:
        self.__copies = [self.make() for _ in range(num_envs)]
        self.__steps_of = [env.step for env in self.__copies]
        self.__seeds: list[int | None] = [seed + i for i in range(num_envs)]
        shape = tuple(self.__copies[0].observation_space.shape)
        super().__init__(type(self).__name__, num_envs, shape, len(self.actions))

    @abstractmethod
    def make(self) -> Any:
        """Return one copy of the environment."""

    @abstractmethod
    def second_observation(self, env: Any, observation: Any) -> Any:
        """Return the second player's observation at a game's beginning; the first player's is `observation`."""

    def _begin(self, i: int) -> None:
        env = self.__copies[i]
        if self.__seeds[i] is not None and hasattr(env, "seed"):
            env.seed(self.__seeds[i])
        self.__seeds[i] = None
        observation = env.reset()
        self._seen[0, i], self._seen[1, i] = observation, self.second_observation(env, observation)

    def _move(
        self, first: list[int], second: list[int], reward: np.ndarray, done: np.ndarray, truncated: np.ndarray
    ) -> None:
        (one, other), given = self._seen, self.actions
        for i, step, a, b in zip(range(self.num_envs), self.__steps_of, first, second, strict=True):
            observation, won, ended, info = step(given[a], given[b])
            if won:
                reward[i] = won, -won
            if ended:
                done[i], truncated[i] = True, bool(info.get("TimeLimit.truncated", False))
            else:
                one[i], other[i] = observation, info["otherObs"]

    def close(self) -> None:
        """Close every copy."""
        for env in self.__copies:
            env.close()
