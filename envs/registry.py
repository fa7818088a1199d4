"""From an environment's id to the environment: one table of sources, each an adapter module with a `make`.

| id                                | what it is                                                    |
|-----------------------------------|---------------------------------------------------------------|
| `CartPole-v1`                     | gymnasium's                                                   |
| `gym:CartPole-v1`                 | old gym's (0.26 and the 4-tuple environments of before)       |
| `my_game.envs:MyEnv`              | a class or factory of your own, from an importable module     |
| `path/to/file.py:MyEnv`           | the same, from a file                                         |

Two-player games have a table of their own: sources.py.
"""

from __future__ import annotations

import importlib
from functools import partial
from types import ModuleType
from typing import Any

import gymnasium

from envs.construct import blame
from envs.sources import is_two_player, make_two_player, of_a_league
from envs.vector import VectorEnv
from warren.errors import ConfigurationError

# Prefix of an id -> the adapter module, imported only when an id asks for it: some sources are slow or noisy to import.
SOURCES = {"gymnasium": "envs.gymnasium_envs", "gym": "envs.gym_envs"}
USER_SOURCE = "envs.user_envs"  # any other "left:right"


def make(env_id: str, **kwargs: Any) -> gymnasium.Env:
    """One environment; `kwargs` go to its constructor.

    Raises UnknownName for an id that no source knows, and ConfigurationError when the environment's module cannot be
    imported or its constructor fails (names the line of the user's code).
    """
    if is_two_player(env_id):
        raise of_a_league(env_id)
    adapter, name = _find(env_id)
    env: gymnasium.Env = adapter.make(name, **kwargs)
    return env


def reward_threshold(env_id: str) -> float | None:
    """The mean return at which the environment counts as solved, where its registration says so; imports no code of
    the user's."""
    source, colon, _ = env_id.partition(":")
    if colon and source not in SOURCES:
        return None
    adapter, name = _find(env_id)
    threshold: float | None = adapter.reward_threshold(name)
    return threshold


def _find(env_id: str) -> tuple[ModuleType, str]:
    """(adapter module, the environment's name for it)."""
    source, colon, name = env_id.partition(":")
    if not colon:
        source, name = "gymnasium", env_id
    elif source not in SOURCES:
        source, name = "", env_id
    return importlib.import_module(SOURCES.get(source, USER_SOURCE)), name


def make_vector(env_id: str, num_envs: int, seed: int, **kwargs: Any) -> VectorEnv:
    """`num_envs` copies of an environment stepped together; the first `reset()` seeds copy i with `seed + i`.

    Raises what `make` raises, and ConfigurationError when the spaces of the copies differ.
    """
    if num_envs < 1:
        raise ConfigurationError(f"num_envs={num_envs} of environment {env_id!r} must be at least 1")
    with blame(f"{num_envs} copies of environment {env_id!r}"):
        return VectorEnv([partial(make, env_id, **kwargs)] * num_envs, seed)


def spaces(env_id: str, **kwargs: Any) -> tuple[gymnasium.Space[Any], gymnasium.Space[Any]]:
    """(observation space, action space) of one environment, which is made and closed to find out.

    Of a two-player game: those of either player.
    """
    if is_two_player(env_id):
        games = make_two_player(env_id, 1, 0, **kwargs)
        games.close()
        return games.single_observation_space, games.single_action_space
    env = make(env_id, **kwargs)
    try:
        return env.observation_space, env.action_space
    finally:
        env.close()
