"""Atari games by name: "atari:pong", "atari:space_invaders". They are ALE's v5 games, preprocessed as usual by default.

ale_py's own vectorised form (`ale_py.vector_env.AtariVectorEnv`) is not used, because it plays differently. It draws
the number of no-ops and the sticky actions from other generators. Its episodes begin with black frames, where
FrameStackObservation repeats the first frame.
"""

from __future__ import annotations

from typing import Any

import gymnasium

from envs import named
from envs.construct import require
from envs.one_agent import gymnasium_envs
from envs.settings import EnvSettings


def make(name: str, **kwargs: Any) -> gymnasium.Env:
    """Return the game `name`, with sticky actions.

    Raises UnknownName, and ConfigurationError if the emulator is missing.
    """
    return gymnasium_envs.make(_id(name), **kwargs)


def preset(name: str, settings: EnvSettings) -> dict[str, Any]:
    """Return the constructor's arguments that `settings` imply."""
    return gymnasium_envs.preset(_id(name), settings)


def reward_threshold(name: str) -> float | None:
    """Return the mean return at which `name` counts as solved: none of these games has one."""
    return None


def _id(name: str) -> str:
    require("ale_py", "ale-py", f"atari:{name}")  # registers the games with gymnasium
    return named.pick("atari", name, named.shown(gymnasium.registry, "ALE/", "-v5"))
