"""One match of Google Research Football: its engine, seeded episode by episode, and its agents' observations.

The library's own `FootballEnv` is used, but without the library's wrappers, which are old gym's.
"""

from __future__ import annotations

import pkgutil
from typing import Any

import numpy as np
from gymnasium import spaces

import envs.one_agent.gym_envs  # noqa: F401 (old gym, which the library imports, needs names that numpy 2 dropped)
from envs import named
from envs.construct import require
from envs.football.picture import picture
from warren.errors import ConfigurationError, UnknownName

REPRESENTATIONS = ("simple115", "minimap")
REWARDS = ("scoring", "scoring,checkpoints")
SIDES = {1: "agent:left_players=1", 2: "agent:left_players=1,right_players=1"}
CHECKPOINTS, CHECKPOINT_REWARD = 10, 0.1  # Kurach et al. 2020, "Google Research Football", section 2.4


class Match:
    """Episodes of the scenario `name`, with one agent, on the left, or one on either side. An agent moves the player
    of its side that is next to the ball; the game's own AI moves all others.

    `representation`: "simple115", float32 [115], the library's simple115v2: both teams' positions and directions, the
    ball's, its owner, the active player and the game's mode; or "minimap", uint8 [72, 96, 4]: left team, right team,
    ball, active player. Each side sees itself as the left one. `rewards`: "scoring", +1 and -1 a goal;
    "scoring,checkpoints" adds .1 for each of ten circles around the goal that are reached with the ball.

    Raises UnknownName for a scenario, and ConfigurationError for other values, or if the library is missing.
    """

    def __init__(
        self, name: str, sides: int, *, representation: str = "simple115", rewards: str = "scoring", **config: Any
    ) -> None:
        env_id = f"football:{name}"
        library: Any = require("gfootball.env.football_env", "gfootball", env_id)
        scenarios: Any = require("gfootball.scenarios", "gfootball", env_id)
        known = [module.name for module in pkgutil.iter_modules(scenarios.__path__) if module.name != "tests"]
        for setting, value, values in (
            ("representation", representation, REPRESENTATIONS),
            ("rewards", rewards, REWARDS),
        ):
            if value not in values:
                raise ConfigurationError(
                    f"environment {env_id!r}: {setting}={value!r} is not one of {', '.join(values)}"
                )
        self.level = named.pick("football", name, {scenario: scenario for scenario in known})
        configs: Any = require("gfootball.env.config", "gfootball", env_id)
        known_settings = sorted(configs.Config().get_dictionary())
        for setting in set(config) - set(known_settings):
            raise UnknownName(f"setting of environment {env_id!r}", setting, known_settings)
        self.sides, self._representation, self._checkpoints = sides, representation, "checkpoints" in rewards
        given = {**config, "level": self.level, "players": [SIDES[sides]], "game_engine_random_seed": 0}
        self._config = configs.Config(given)
        self._env = library.FootballEnv(self._config)
        self._wrappers: Any = require("gfootball.env.wrappers", "gfootball", env_id)
        self._minimap: Any = require("gfootball.env.observation_preprocessing", "gfootball", env_id)
        actions: Any = require("gfootball.env.football_action_set", "gfootball", env_id)
        self.actions = [str(action) for action in actions.get_action_set(self._config)]
        self._seen: list[dict[str, Any]] = []
        self._reached = [0] * sides

    @property
    def observation_space(self) -> spaces.Box:
        """The observation space of one side."""
        if self._representation == "minimap":
            return spaces.Box(0, 255, (72, 96, 4), np.uint8)
        return spaces.Box(-np.inf, np.inf, (115,), np.float32)

    def reset(self, seed: int) -> np.ndarray:
        """Begin an episode whose randomness follows from `seed`; return the observations, [sides, ...]."""
        self._config["game_engine_random_seed"] = seed
        self._config["reverse_team_processing"] = bool(seed % 2)  # which side moves first; else as for the first seed
        self._seen = self._env.reset()
        self._reached = [0] * self.sides
        return self._observations()

    def step(self, actions: list[int]) -> tuple[np.ndarray, np.ndarray, bool, bool]:
        """Play a step; return (observations, rewards float32 [sides], whether over, whether by the clock alone)."""
        self._seen, rewards, over, _ = self._env.step(actions)
        rewards = np.asarray(rewards, np.float32)
        by_the_clock = bool(over) and self._seen[0]["steps_left"] <= 0 and not rewards.any()
        if self._checkpoints:
            rewards = rewards + [self._checkpoint_reward(side, won) for side, won in enumerate(rewards.tolist())]
        return self._observations(), rewards.astype(np.float32), bool(over), by_the_clock

    def picture(self) -> np.ndarray:
        """Return the pitch from above, uint8 [height, width, 3]; no display is needed."""
        return picture(self._seen[0])

    def close(self) -> None:
        """Hand the engine back to the library, which uses it for the next match."""
        self._env.close()

    def _observations(self) -> np.ndarray:
        if self._representation == "minimap":
            return np.asarray(self._minimap.generate_smm(self._seen), np.uint8)
        converted: np.ndarray = self._wrappers.Simple115StateWrapper.convert_observation(self._seen, True)
        return converted

    def _checkpoint_reward(self, side: int, scored: float) -> float:
        """Return the reward by the library's rule (its wrapper is for old gym): a goal counts all circles left."""
        before = self._reached[side]
        seen = self._seen[side]
        if scored == 1:
            self._reached[side] = CHECKPOINTS
        elif seen["ball_owned_team"] == 0 and seen["ball_owned_player"] == seen["active"]:
            distance = float(np.hypot(seen["ball"][0] - 1, seen["ball"][1]))
            circles = 0.99 - 0.8 / (CHECKPOINTS - 1) * np.arange(CHECKPOINTS)  # their radii
            self._reached[side] = max(before, int((distance <= circles).sum()))
        return CHECKPOINT_REWARD * (self._reached[side] - before)
