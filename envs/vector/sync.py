"""Environments stepped one after another in this process: the form that any environment has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from gymnasium.vector.utils import concatenate, create_empty_array, iterate

from envs.vector.base import Stepped, VectorEnv, WrongObservation, no_final_observations


class SyncVectorEnv(VectorEnv):
    """Steps and returns what gymnasium's class of this name does, with less around each step.

    gymnasium's passive checker stays: it looks at the first two steps alone, and is a function call after that.
    """

    def __init__(self, make: Sequence[Callable[[], gymnasium.Env]], seed: int | None = None) -> None:
        self.envs = [each() for each in make]
        first = self.envs[0]
        for i, env in enumerate(self.envs):
            for what in ("observation_space", "action_space"):
                if (ours := getattr(env, what)) != (wanted := getattr(first, what)):
                    raise ValueError(
                        f"the {what.replace('_', ' ')}s of the copies differ: copy 0 has {wanted}, copy {i} {ours}"
                    )
        super().__init__(len(self.envs), first.observation_space, first.action_space, seed, first.metadata)
        self.render_mode = first.render_mode

    def _reset(self, seeds: Sequence[int | None], options: dict[str, Any] | None) -> tuple[Any, dict[str, Any]]:
        observations: list[Any] = []
        infos: dict[str, Any] = {}
        for i, (env, seed) in enumerate(zip(self.envs, seeds, strict=True)):
            observation, info = env.reset(seed=seed, options=options)
            observations.append(observation)
            if info:
                infos = self._add_info(infos, info, i)
        return self._batch(observations), infos

    def _step(self, actions: Any) -> Stepped:
        observations, rewards = [], np.empty(self.num_envs, np.float64)
        terminated, truncated = np.empty(self.num_envs, np.bool_), np.empty(self.num_envs, np.bool_)
        infos: dict[str, Any] = {}
        final: np.ndarray | None = None
        for i, (env, action) in enumerate(zip(self.envs, iterate(self.action_space, actions), strict=True)):
            observation, rewards[i], ended, cut, info = env.step(action)
            terminated[i], truncated[i] = ended, cut
            if ended or cut:
                if final is None:
                    final = no_final_observations(self.num_envs)
                final[i] = deepcopy(observation)  # some environments write each observation into the same array
                infos = self._add_info(infos, {"final_info": info}, i)
                observation, info = env.reset()
            observations.append(observation)
            if info:
                infos = self._add_info(infos, info, i)
        if final is not None:
            infos["final_obs"], infos["_final_obs"] = final, terminated | truncated
        return Stepped(self._batch(observations), rewards, terminated, truncated, infos)

    def _batch(self, observations: list[Any]) -> Any:
        """One array [N, ...], or a tree of such; it is new, so that who keeps it need not copy."""
        space = self.single_observation_space
        if not isinstance(space, Box):
            empty: Any = create_empty_array(space, self.num_envs)
            return concatenate(space, observations, empty)
        batch = np.empty((self.num_envs, *space.shape), space.dtype)
        for i, observation in enumerate(observations):
            if np.shape(observation) != space.shape:  # or numpy would spread a smaller one over the row
                raise WrongObservation(
                    f"gave an observation of shape {list(np.shape(observation))}; its observation_space has "
                    f"{list(space.shape)} (environment {i} of {self.num_envs})"
                )
            batch[i] = observation
        return batch

    def close_extras(self, **kwargs: Any) -> None:
        """Closes the environments."""
        for env in self.envs:
            env.close()
