"""Environments of OpenAI Gym 0.26 and of the 4-tuple API before it: "gym:CartPole-v1"."""

from __future__ import annotations

import contextlib
import io
import math
from typing import Any

import gymnasium

from envs.construct import blame
from envs.one_agent.gymnasium_envs import with_pip
from envs.one_agent.legacy import LegacyEnv
from warren.errors import ConfigurationError, UnknownName
from warren.old_numpy import restore_names

restore_names()

with contextlib.redirect_stderr(io.StringIO()):  # hides its notice that it is unmaintained
    import gym

REGISTERED_ELSEWHERE = (
    "one that a package registers is found by gym:MODULE:ID, as in gym:slimevolleygym:SlimeVolley-v0, or by its class, "
    "module:Class or path/to/file.py:Class"
)


def make(name: str, **kwargs: Any) -> gymnasium.Env:
    """Return the environment registered with gym as `name`, in gymnasium's API.

    Raises UnknownName, ConfigurationError.
    """
    with blame(f"environment {'gym:' + name!r}"):
        try:
            # Its checker needs numpy 1; its wrappers require 5-tuples, which older games do not return.
            env = gym.make(name, disable_env_checker=True, apply_api_compatibility=False, **kwargs)
        except (gym.error.UnregisteredEnv, gym.error.DeprecatedEnv) as unknown:
            known = [f"gym:{known}" for known in gym.envs.registry]
            remedy = REGISTERED_ELSEWHERE if isinstance(unknown, gym.error.NameNotFound) else str(unknown)
            raise UnknownName("environment", f"gym:{name}", known, remedy) from None
        except gym.error.DependencyNotInstalled as missing:
            raise ConfigurationError(
                f"environment 'gym:{name}' needs more packages: {with_pip(str(missing))}"
            ) from None
        max_episode_steps = math.inf
        if isinstance(env, gym.wrappers.TimeLimit):
            max_episode_steps, env = env._max_episode_steps, env.env
        if isinstance(env, gym.wrappers.OrderEnforcing):
            env = env.env
        return LegacyEnv(env, max_episode_steps)


def reward_threshold(name: str) -> float | None:
    """Return the mean return at which `name` counts as solved, if its registration gives one."""
    with contextlib.suppress(gym.error.Error, ModuleNotFoundError):
        threshold: float | None = gym.spec(name).reward_threshold
        return threshold
    return None
