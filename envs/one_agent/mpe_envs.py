"""The multi-particle environments: "mpe:simple" for one agent, "mpe:simple_spread" and others for several together."""

from __future__ import annotations

from typing import Any

import gymnasium

from envs import named
from envs.construct import blame, require


def make(name: str, **kwargs: Any) -> Any:
    """Return the scenario `name`: PettingZoo's environment, or gymnasium's if it has one agent. Raises UnknownName."""
    env_id = f"mpe:{name}"
    modules = require("mpe2.all_modules", "mpe2", env_id).mpe_environments
    full = named.pick("mpe", name, {module.rpartition("/")[2].rpartition("_v")[0]: module for module in modules})
    with blame(f"environment {env_id!r}"):
        env: Any = modules[full].parallel_env(**kwargs)
        return env if len(env.possible_agents) > 1 else OneOfParallel(env)


def reward_threshold(name: str) -> float | None:
    """Return the mean return at which `name` counts as solved: no scenario has one."""
    return None


class OneOfParallel(gymnasium.Env):
    """A PettingZoo parallel environment with a single agent as an environment of one agent."""

    def __init__(self, env: Any) -> None:
        self.env = env
        (self.agent,) = env.possible_agents
        self.observation_space, self.action_space = env.observation_space(self.agent), env.action_space(self.agent)
        self._space: Any = self.observation_space
        self.metadata = env.metadata

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Return (observation, info) of a new episode; without a seed the random generator goes on."""
        super().reset(seed=seed)
        if seed is None:  # PettingZoo would draw a seed from the operating system
            seed = int(self.np_random.integers(1 << 31))
        observations, infos = self.env.reset(seed=seed, options=options)
        return observations[self.agent], infos[self.agent]

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step the environment once."""
        of_all = self.env.step({self.agent: action})
        observation, reward, terminated, truncated, info = (of_one[self.agent] for of_one in of_all)
        return observation, float(reward), bool(terminated), bool(truncated), info

    def close(self) -> None:
        """Close the environment."""
        self.env.close()
