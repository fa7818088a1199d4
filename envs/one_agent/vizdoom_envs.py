"""ViZDoom's scenarios: "vizdoom:basic", "vizdoom:deadly_corridor", "vizdoom:deathmatch".

They are the library's environments for gymnasium: observations are a Dict of "screen", uint8 [240, 320, 3], and
"gamevariables" if the scenario has some; its options are `env.kwargs`. With `+env.kwargs.screen_only=true` the
observation is the screen alone, which `env.grey`, `env.resize` and `env.frame_stack` can process.
"""

from __future__ import annotations

from typing import Any

import gymnasium

from envs import named
from envs.construct import blame, require


def make(name: str, screen_only: bool = False, **kwargs: Any) -> gymnasium.Env:
    """Return the scenario `name`.

    Raises UnknownName, and ConfigurationError if ViZDoom is missing or refuses `kwargs`.
    """
    env_id = f"vizdoom:{name}"
    require("vizdoom.gymnasium_wrapper", "vizdoom", env_id)  # registers the scenarios with gymnasium
    full = named.pick("vizdoom", name, named.shown(gymnasium.registry, "Vizdoom", "-v1"))
    with blame(f"environment {env_id!r}"):
        env = gymnasium.make(full, **kwargs)
        return _ScreenOnly(env) if screen_only else env


def reward_threshold(name: str) -> float | None:
    """Return the mean return at which `name` counts as solved: no scenario has one."""
    return None


class _ScreenOnly(gymnasium.ObservationWrapper):
    """Keeps only the part "screen" of the observation."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        assert isinstance(env.observation_space, gymnasium.spaces.Dict)
        self.observation_space = env.observation_space["screen"]

    def observation(self, observation: Any) -> Any:
        return observation["screen"]
