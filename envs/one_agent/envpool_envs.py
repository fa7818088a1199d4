"""envpool's environments, many at once in C++ threads: "envpool:Pong-v5", "envpool:CartPole-v1".

They are envpool's own: it implements the games anew, draws starts from other generators than gymnasium, and rounds
CartPole differently. As in every vector here, a copy is reset within the step that ends its episode, by resetting that
copy alone; envpool itself would reset it in the next step. `env.kwargs` are envpool's options, such as `num_threads`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from envs.construct import blame, require
from envs.vector.own import Factory, OneOfVector
from warren.errors import UnknownName

_DEFAULT_SEED = 42  # envpool's own


def make(name: str, **kwargs: Any) -> gymnasium.Env:
    """Return a pool of one. Raises UnknownName, and ConfigurationError if envpool is missing or refuses `kwargs`."""
    with blame(f"environment 'envpool:{name}'"):
        return OneOfVector(f"envpool:{name}", vector(name), kwargs)


def reward_threshold(name: str) -> float | None:
    """Return the mean return at which `name` counts as solved, if envpool gives one."""
    envpool = require("envpool", "envpool", f"envpool:{name}")
    if name not in envpool.list_all_envs():
        return None
    threshold = dict(envpool.make_spec(name).config._asdict()).get("reward_threshold")
    return float(threshold) if threshold else None


def vector(name: str) -> Factory:
    """Return the pool's factory, which takes the number of copies and envpool's options. Raises UnknownName."""
    envpool = require("envpool", "envpool", f"envpool:{name}")
    if name not in (known := envpool.list_all_envs()):
        raise UnknownName("environment", f"envpool:{name}", [f"envpool:{one}" for one in known])

    def pool(num_envs: int, **kwargs: Any) -> Pool:
        return Pool(envpool, name, num_envs, kwargs)

    return pool


class Pool(gymnasium.vector.VectorEnv):
    """N copies in one pool, made at the first reset, and again at each reset with a seed, as a pool's seed is fixed."""

    def __init__(self, envpool: Any, name: str, num_envs: int, kwargs: dict[str, Any]) -> None:
        self._envpool, self._name, self._kwargs = envpool, name, kwargs
        self._env: Any = None
        self.num_envs = num_envs
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
        options = {option: value for option, value in kwargs.items() if option != "num_threads"}
        spec = envpool.make_spec(name, **options)
        self.single_observation_space = spec.gymnasium_observation_space
        self.single_action_space = spec.gymnasium_action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Return (observation, info) of new episodes; with a seed, or one per copy, the pool is made anew."""
        if seed is not None or self._env is None:
            first = _DEFAULT_SEED if seed is None else seed
            seeds = [first + i for i in range(self.num_envs)] if isinstance(first, int) else list(first)
            threads = {"num_threads": min(self.num_envs, os.cpu_count() or 1), **self._kwargs}
            self.close_extras()
            self._env = self._envpool.make(
                self._name, env_type="gymnasium", num_envs=self.num_envs, seed=seeds, **threads
            )
        observation, _ = self._env.reset()
        return observation, {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step each copy once; if an episode ended, the observation is the next episode's first."""
        observation, reward, terminated, truncated, _ = self._env.step(np.asarray(actions))
        done = terminated | truncated
        info: dict[str, Any] = {}
        if done.any():
            (ended,) = done.nonzero()
            final = np.full(self.num_envs, None, dtype=object)
            for i in ended:
                final[i] = observation[i].copy()
            observation = observation.copy()
            observation[ended] = self._env.reset(ended.astype(np.int32))[0]
            info = {"final_obs": final, "_final_obs": done}
        return observation, reward, terminated, truncated, info

    def close_extras(self, **kwargs: Any) -> None:
        """End the pool's threads."""
        if self._env is not None:
            self._env.close()
        self._env = None
