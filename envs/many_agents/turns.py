"""Games in turns as parallel ones: a waiting agent sees the game go on, and has one action, which does nothing.

This is for PettingZoo's AEC environments whose agents see each other's moves. Every step is one move. A step in which
an agent waits teaches its value and nothing about its actions: the only legal one has probability 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from envs.masks import KEY, MaskKey, Masks
from warren.errors import ConfigurationError


class InTurns:
    """An AEC environment with the methods of a parallel one. Masks are in the infos, also those of waiting agents."""

    def __init__(self, env: Any, env_id: str) -> None:
        """Take an AEC environment. Raises ConfigurationError for actions that no mask can forbid."""
        self._env = env
        self.possible_agents = list(env.possible_agents)
        self.metadata = getattr(env, "metadata", {})
        self.render_mode = getattr(env, "render_mode", None)
        self.unwrapped = getattr(env, "unwrapped", env)
        self.state_space = getattr(env, "state_space", None)
        self._masks: dict[str, Masks] = {}
        self._keys: dict[str, MaskKey | None] = {}
        for agent in self.possible_agents:
            actions = env.action_space(agent)
            if not isinstance(actions, spaces.Discrete):
                raise ConfigurationError(
                    f"environment {env_id!r} is played in turns, where a waiting agent has one action; {agent} acts by "
                    f"{actions}, of which none can be taken away: make it Discrete, or the game a ParallelEnv"
                )
            self._masks[agent] = Masks(actions)
            self._keys[agent] = MaskKey.of(env.observation_space(agent), actions)
        self.agents: list[str] = []

    def observation_space(self, agent: str) -> Any:
        """Return the environment's observation space of an agent, without the mask."""
        key = self._keys[agent]
        return self._env.observation_space(agent) if key is None else key.space

    def action_space(self, agent: str) -> Any:
        """Return the environment's action space of an agent."""
        return self._env.action_space(agent)

    def state(self) -> Any:
        """Return the environment's state."""
        return self._env.state()

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin a game."""
        self._env.reset(seed=seed, options=options)
        self.agents = list(self._env.agents)
        return self._seen(self.agents)

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        """Make the move of the agent whose turn it is; the others' actions are ignored."""
        env, playing = self._env, self.agents
        rewards, ended, cut = dict.fromkeys(playing, 0.0), dict.fromkeys(playing, False), dict.fromkeys(playing, False)
        action: Any = actions[env.agent_selection]
        before: dict[str, Any] = {}  # last observations of agents that have left
        while True:
            env.step(action)
            for agent in playing:
                rewards[agent] += float(env.rewards.get(agent, 0.0))
                ended[agent] |= bool(env.terminations.get(agent, False))
                cut[agent] |= bool(env.truncations.get(agent, False))
            if not env.agents or not (env.terminations[env.agent_selection] or env.truncations[env.agent_selection]):
                break
            before |= self._seen(env.agents)[0]
            action = None  # an agent that is out leaves by a step of its own
        self.agents = [agent for agent in playing if agent in env.agents and not (ended[agent] or cut[agent])]
        observations, infos = self._seen(env.agents)
        return before | observations, rewards, ended, cut, infos

    def render(self) -> Any:
        """Return what the environment draws."""
        return self._env.render()

    def close(self) -> None:
        """Close the environment."""
        self._env.close()

    def _seen(self, agents: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return (observations, infos) of these agents."""
        observations, infos = {}, {}
        for agent in agents:
            seen, key = self._env.observe(agent), self._keys[agent]
            given = self._env.infos.get(agent, {}).get(KEY)
            if key is not None:
                seen, given = key.split(seen)
            if agent != self._env.agent_selection:
                given = np.arange(self._masks[agent].size) == 0
            elif given is None:
                given = np.ones(self._masks[agent].size, np.bool_)
            observations[agent], infos[agent] = seen, {KEY: given}
        return observations, infos
