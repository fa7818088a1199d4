"""Google Research Football for one agent, against the game's own AI: "football:academy_empty_goal_close".

Its options are those of match.Match, as `env.kwargs`; two agents against each other are in games.py.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from envs.construct import blame
from envs.football.match import Match


def make(name: str, render_mode: str | None = None, **kwargs: Any) -> gymnasium.Env:
    """Return the scenario `name`, on the left side. Raises UnknownName and ConfigurationError."""
    with blame(f"environment 'football:{name}'"):
        return FootballEnv(name, render_mode, **kwargs)


def reward_threshold(name: str) -> float | None:
    """Return the mean return at which `name` counts as solved: no scenario has one."""
    return None


class FootballEnv(gymnasium.Env):
    """One scenario; nineteen actions. An episode that the clock ends is truncated: no observation shows the clock."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(self, name: str, render_mode: str | None = None, **kwargs: Any) -> None:
        self.match, self.render_mode = Match(name, 1, **kwargs), render_mode
        self.observation_space = self.match.observation_space
        self.action_space = gymnasium.spaces.Discrete(len(self.match.actions))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Return (observation, {}) of a new episode."""
        super().reset(seed=seed)
        return self.match.reset(int(self.np_random.integers(1 << 31)))[0], {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Play one step, a tenth of a second of the game."""
        observations, rewards, over, by_the_clock = self.match.step([int(action)])
        return observations[0], float(rewards[0]), over and not by_the_clock, by_the_clock, {}

    def render(self) -> np.ndarray:
        """Return the pitch from above, uint8 [320, 640, 3]."""
        return self.match.picture()

    def close(self) -> None:
        """Close the match."""
        self.match.close()
