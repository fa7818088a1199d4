"""A user's own vector of environments: a class derived from `gymnasium.vector.VectorEnv`, stepped as a whole.

    env.id=path/to/file.py:MyVector          # called as MyVector(num_envs, **env.kwargs)

This is for games that are written as arrays, or that step many copies in another language. The vector resets an episode
within the step that ends it (`metadata["autoreset_mode"]` is `AutoresetMode.SAME_STEP`) and gives the ended episode's
last observation as `info["final_obs"][i]`. Masks of legal actions at that observation are in it too, or in
`info["final_info"]["action_mask"][i]`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any, TypeGuard

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate

from envs.masks import FINAL, KEY, MaskKey, Masks, WrongMask
from envs.rewards import Rewards
from envs.vector.base import Stepped, VectorEnv, no_final_observations
from warren.errors import ConfigurationError
from warren.trees import take
from warren.user_code import call

Factory = Callable[..., gymnasium.vector.VectorEnv]


def is_vector(factory: object) -> TypeGuard[Factory]:
    """Return True if a user's class is a vector of environments."""
    return isinstance(factory, type) and issubclass(factory, gymnasium.vector.VectorEnv)


class OwnVectorEnv(VectorEnv):
    """Wraps `factory(num_envs, **kwargs)`, and counts returns and treats rewards as for any environment."""

    def __init__(
        self,
        env_id: str,
        factory: Factory,
        num_envs: int,
        seed: int | None,
        kwargs: Mapping[str, Any],
        rewards: Rewards,
        masked: bool = True,
    ) -> None:
        self._env: Any = made(env_id, factory, num_envs, kwargs)
        observed, actions = self._env.single_observation_space, self._env.single_action_space
        self._masks = Masks.of(actions) if masked else None  # None: there are no masks
        self._key = MaskKey.of(observed, actions) if masked else None
        observed = observed if self._key is None else self._key.space
        super().__init__(num_envs, observed, actions, seed, self._env.metadata, rewards)

    def _reset(self, seeds: Sequence[int | None], options: dict[str, Any] | None) -> tuple[Any, dict[str, Any]]:
        given = None if None in seeds else list(seeds)
        observation, info = self._env.reset(seed=given, options=options)
        if self._masks is not None:
            self.masks = self._masks if self._key is not None or KEY in info else None
        observation, info = self._masked(observation, info)
        return _copied(observation), info

    def _masked(self, observation: Any, info: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Return (observation without a mask, info with the masks as policies take them), if there are masks."""
        if self.masks is None:
            return observation, info
        if self._key is not None:
            observation, given = self._key.split(observation)
        elif KEY in info:
            given = info[KEY]
        else:
            raise WrongMask(f"gave no {KEY} in its info, which others had; give one with each observation")
        rows = np.stack([self.masks.row(take(given, i)) for i in range(self.num_envs)])
        return observation, {**info, KEY: self.masks.tree(rows)}

    def _step(self, actions: Any) -> Stepped:
        observation, reward, terminated, truncated, info = self._env.step(actions)
        # Numbers 0 and 1, as games in other languages give them, would not select rows or reset memories.
        terminated, truncated = np.array(terminated, np.bool_), np.array(truncated, np.bool_)
        ended = terminated | truncated
        if ended.any() and "final_obs" not in info:
            raise ValueError(
                f'ended {int(ended.sum())} episodes without info["final_obs"], an object array [{self.num_envs}] with '
                "the last observation of each"
            )
        at_end = {} if self.masks is None or not ended.any() else self._at_end(info)
        observation, info = self._masked(observation, info)
        info = info if not at_end else {**info, **at_end}
        return Stepped(_copied(observation), np.asarray(reward, np.float64), terminated, truncated, info)

    def _at_end(self, info: dict[str, Any]) -> dict[str, Any]:
        """Return info with the last observations of ended episodes without their masks, and with these masks."""
        assert self.masks is not None
        rows = np.ones((self.num_envs, self.masks.size), np.bool_)
        left, told = no_final_observations(self.num_envs), info.get("final_info", {}).get(KEY)
        for i, seen in enumerate(info["final_obs"]):
            if seen is not None:
                left[i], given = (seen, None) if self._key is None else self._key.split(seen)
                rows[i] = self.masks.row_at_end(given if told is None else take(told, i))
        return {"final_obs": left, FINAL: self.masks.tree(rows)}

    def close_extras(self, **kwargs: Any) -> None:
        """Close the user's vector."""
        self._env.close()


class OneOfVector(gymnasium.Env):
    """A vector of one copy as a single environment: to be watched, checked, and asked for its spaces."""

    def __init__(self, env_id: str, factory: Factory, kwargs: Mapping[str, Any]) -> None:
        self._env: Any = made(env_id, factory, 1, kwargs)
        self.observation_space, self.action_space = self._env.single_observation_space, self._env.single_action_space
        self.metadata = {name: value for name, value in self._env.metadata.items() if name != "autoreset_mode"}
        self.render_mode = self._env.render_mode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Return (observation, info) of a new episode."""
        super().reset(seed=seed)
        observation, info = self._env.reset(seed=None if seed is None else [seed], options=options)
        return self._first(observation), _mask_of_first(info)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step once; at an episode's end the observation is its last one."""
        batch: Any = create_empty_array(self.action_space, 1)
        batch = concatenate(self.action_space, [action], batch)
        observation, reward, terminated, truncated, info = self._env.step(batch)
        ended = bool(terminated[0] or truncated[0])
        seen = info["final_obs"][0] if ended and "final_obs" in info else self._first(observation)
        return seen, np.asarray(reward)[0], bool(terminated[0]), bool(truncated[0]), _mask_of_first(info)

    def _first(self, observation: Any) -> Any:
        return next(iterate(batch_space(self.observation_space, 1), observation))

    def close(self) -> None:
        """Close the user's vector."""
        self._env.close()


def made(env_id: str, factory: Factory, num_envs: int, kwargs: Mapping[str, Any]) -> gymnasium.vector.VectorEnv:
    """Return the user's vector. Raises ConfigurationError if its size is wrong or it resets in another step."""
    env: gymnasium.vector.VectorEnv = call(f"environment {env_id!r}", factory, num_envs, **kwargs)
    if env.num_envs != num_envs:
        raise ConfigurationError(
            f"environment {env_id!r}: {num_envs} copies were asked for, its num_envs is {env.num_envs}; take the "
            "number as the constructor's first argument"
        )
    mode = env.metadata.get("autoreset_mode")
    if mode is not AutoresetMode.SAME_STEP:
        raise ConfigurationError(
            f"environment {env_id!r}: its autoreset_mode is {mode}; let it reset an episode within the step that ends "
            'it, and say so: metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}'
        )
    return env


def _mask_of_first(info: dict[str, Any]) -> dict[str, Any]:
    return {KEY: take(info[KEY], 0)} if KEY in info else {}


def _copied(observation: Any) -> Any:
    """Return a copy: some vectors write every observation to the same arrays."""
    return observation.copy() if isinstance(observation, np.ndarray) else deepcopy(observation)
