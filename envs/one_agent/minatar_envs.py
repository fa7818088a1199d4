"""MinAtar's games (Young & Tian 2019): "minatar:breakout", "minatar:space_invaders".

Observations are bool [10, 10, C], a channel for each kind of object; the actions are those that have an effect in the
game. `env.kwargs` are the library's: `use_minimal_action_set=false` gives all six actions, as the paper has them, and
`sticky_action_prob` (0.1 by default) is the probability that the game repeats the last action.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from envs import named
from envs.construct import blame, require

GAMES = ("asterix", "breakout", "freeway", "seaquest", "space_invaders")
PIXELS = 16  # of a cell's side in a picture; the library's have one, as numbers from 0 to 1


def make(name: str, use_minimal_action_set: bool = True, **kwargs: Any) -> gymnasium.Env:
    """Return the game `name`.

    Raises UnknownName, and ConfigurationError if MinAtar is missing or refuses `kwargs`.
    """
    env_id = f"minatar:{name}"
    library = require("minatar.gym", "minatar", env_id)
    game = named.pick("minatar", name, dict(zip(GAMES, GAMES, strict=True)))
    with blame(f"environment {env_id!r}"):
        return _Adapted(library.BaseEnv(game, use_minimal_action_set=use_minimal_action_set, **kwargs))


def reward_threshold(name: str) -> float | None:
    """Return the mean return at which `name` counts as solved: no game has one."""
    return None


class _Adapted(gymnasium.Wrapper):
    """Begins episodes without the last one's action, so that a seed decides all of them, and draws larger pictures."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.env.unwrapped.game.last_action = 0  # type: ignore[attr-defined]
        return self.env.reset(seed=seed, options=options)

    def render(self) -> Any:
        drawn: Any = self.env.render()
        if self.render_mode != "rgb_array":
            return drawn
        return (255 * drawn).astype(np.uint8).repeat(PIXELS, 0).repeat(PIXELS, 1)
