"""A user's own environments: "my.module:MyEnv" or "path/to/file.py:MyEnv", a class or any callable that makes one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium

from envs.construct import blame
from envs.one_agent.legacy import LegacyEnv
from envs.rules import Rules
from envs.sources import OfALeague
from envs.two_player.vector_env import TwoPlayerVectorEnv
from envs.vector.own import OneOfVector, is_vector
from warren import user_code


def make(env_id: str, **kwargs: Any) -> Any:
    """Return the environment that `env_id` names, which may be PettingZoo's. Raises UnknownName, ConfigurationError."""
    factory = find(env_id)
    if isinstance(factory, type) and issubclass(factory, TwoPlayerVectorEnv | Rules):
        raise OfALeague(env_id)
    with blame(f"environment {env_id!r}"):
        if is_vector(factory):
            return OneOfVector(env_id, factory, kwargs)
        env = user_code.call(f"environment {env_id!r}", factory, **kwargs)
        if isinstance(env, gymnasium.Env):
            return env
        if isinstance(env, TwoPlayerVectorEnv):
            raise OfALeague(env_id)
        if hasattr(env, "possible_agents"):  # PettingZoo's
            return env
        return LegacyEnv(env)


def find(env_id: str) -> Callable[..., Any]:
    """Return the class or function that `env_id` names. Raises UnknownName, ConfigurationError."""
    return user_code.find("environment", env_id)
