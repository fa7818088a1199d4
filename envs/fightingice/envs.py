"""FightingICE for one agent: "fightingice:zen", against random actions, a dummy, or one of the game's own AIs.

Its options are those of match.Match, as `env.kwargs`; two agents against each other are in games.py.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from envs.construct import blame
from envs.fightingice.commands import ACTIONS
from envs.fightingice.match import RANDOM, Match
from envs.fightingice.observation import FIELDS


def make(name: str, opponent: str = RANDOM, **kwargs: Any) -> gymnasium.Env:
    """Return games of the character `name`. Raises UnknownName and ConfigurationError."""
    with blame(f"environment 'fightingice:{name}'"):
        return FightingIceEnv(name, opponent, **kwargs)


def reward_threshold(name: str) -> float | None:
    """Return the mean return at which `name` counts as solved: no character has one."""
    return None


class FightingIceEnv(gymnasium.Env):
    """One game per episode, as player 1. A game whose time runs out is decided by hit points."""

    def __init__(self, name: str, opponent: str, **kwargs: Any) -> None:
        self.match = Match(name, opponent, **kwargs)
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (len(FIELDS),), np.float32)
        self.action_space = gymnasium.spaces.Discrete(len(ACTIONS))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Return (observation, {}) of a new game. The game is deterministic; random opponents follow the seed."""
        super().reset(seed=seed)
        return self.match.reset()[0], {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Play one action, of `frame_skip` frames."""
        actions = [int(action)]
        if self.match.sides == 2:
            actions.append(int(self.np_random.integers(len(ACTIONS))))
        step = self.match.step(actions)
        return step.observations[0], float(step.rewards[0]), step.over, False, {}

    def close(self) -> None:
        """End the game's process."""
        self.match.close()
