"""Games of several agents, many at once, as one vector: a slot for each agent of each game."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import numpy as np
from gymnasium.vector.utils import iterate

from envs.many_agents.team import SOME, VALID, Team
from envs.masks import FINAL, KEY, WrongMask
from envs.rewards import Rewards
from envs.vector.base import Stepped, VectorEnv, no_final_observations, stacked

OVER = "over"  # key of the info: bool [games]


class AgentsVectorEnv(VectorEnv):
    """G games of P agents: slot g * P + p is agent p of game g; `group` int64 [N] is the game of each slot.

    `info["valid"]` bool [N]: whether the slot decides next. A slot that did not decide counts as terminated, with a
    reward of 0, so that nothing flows from what follows. A game begins anew within the step in which its last agents
    end. A game is one episode: its return is the mean of its agents' returns.
    """

    group: np.ndarray

    def __init__(
        self, teams: Sequence[Team], seed: int | None, rewards: Rewards, first: int = 0, of: int | None = None
    ):
        """`first`, `of`: the number of the first of these games, among how many in all."""
        self.teams, one = list(teams), teams[0]
        for i, team in enumerate(teams):
            if (team.observation_space, team.action_space) != (one.observation_space, one.action_space):
                raise ValueError(f"the spaces of the games differ: game 0 and game {i}")
        self._players = len(one.agents)
        self.games = len(teams)
        slots = self.games * self._players
        super().__init__(slots, one.observation_space, one.action_space, seed, one.metadata, rewards)
        self.render_mode = one.render_mode
        self.group = np.repeat(np.arange(self.games), self._players)
        self._counts = np.zeros((self.games, 2), np.float64)
        self._each = iterate.dispatch(type(self.action_space))
        self._first, self._of = first, of or self.games

    @property
    def _copies(self) -> int:
        return self.games

    def _reset(self, seeds: Sequence[int | None], options: dict[str, Any] | None) -> tuple[Any, dict[str, Any]]:
        observations: list[Any] = []
        infos: list[dict[str, Any]] = []
        for i, (team, seed) in enumerate(zip(self.teams, seeds, strict=True)):
            try:
                seen, info = team.reset(seed=seed, options=options)
                if team.masked != self.teams[0].masked:
                    raise WrongMask(SOME)
            except Exception as error:
                error.add_note(self._copy(i))
                raise
            observations += seen
            infos.append(info)
        self.masks = self.teams[0].masks if self.teams[0].masked else None
        return stacked(self.single_observation_space, observations), self._joined(infos)

    def _step(self, actions: Any) -> Stepped:
        players, given = self._players, list(self._each(self.action_space, actions))
        decided = np.concatenate([team.valid for team in self.teams])
        observations: list[Any] = []
        infos: list[dict[str, Any]] = []
        reward = np.empty(self.num_envs, np.float64)
        terminated, truncated = ~decided, np.zeros(self.num_envs, np.bool_)
        over = np.zeros(self.games, np.bool_)
        final: np.ndarray | None = None
        final_rows: np.ndarray | None = None
        for i, team in enumerate(self.teams):
            slots = slice(i * players, (i + 1) * players)
            try:
                seen, reward[slots], ended, truncated[slots], info = team.step(given[slots])
                terminated[slots] |= ended
                for p in np.flatnonzero(ended | truncated[slots]):
                    final = no_final_observations(self.num_envs) if final is None else final
                    final[slots.start + p] = deepcopy(seen[p])
                if FINAL in info:
                    assert self.masks is not None
                    if final_rows is None:
                        final_rows = np.ones((self.num_envs, self.masks.size), np.bool_)
                    final_rows[slots] = info[FINAL]
                if team.over:
                    over[i] = True
                    seen, info = team.reset()
            except Exception as error:
                error.add_note(self._copy(i))
                raise
            observations += seen
            infos.append(info)
        told = self._joined(infos) | {OVER: over}
        if final is not None:
            told |= {"final_obs": final, "_final_obs": (terminated | truncated) & decided}
        if final_rows is not None and self.masks is not None:
            told[FINAL] = self.masks.tree(final_rows)
        seen_by_all = stacked(self.single_observation_space, observations)
        return Stepped(seen_by_all, reward, terminated, truncated, told)

    def _count(self, total: np.ndarray, stepped: Stepped) -> None:
        self._counts[:, 0] += total.reshape(self.games, self._players).mean(1)
        self._counts[:, 1] += 1
        (ended,) = stepped.info[OVER].nonzero()
        if len(ended):
            self._finished.append(self._counts[ended])
            self._counts[ended] = 0

    def _joined(self, infos: Sequence[dict[str, Any]]) -> dict[str, Any]:
        joined: dict[str, Any] = {VALID: np.concatenate([info[VALID] for info in infos])}
        if self.masks is not None:
            joined[KEY] = self.masks.tree(np.concatenate([info[KEY] for info in infos]))
        return joined

    def _copy(self, i: int) -> str:
        return f"copy {self._first + i} of {self._of}"

    def close_extras(self, **kwargs: Any) -> None:
        """Close the games."""
        for team in self.teams:
            team.close()
