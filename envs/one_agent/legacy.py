"""Environments that do not derive from gymnasium.Env, adapted to gymnasium's API: old gym's, and bare classes."""

from __future__ import annotations

import inspect
import math
from typing import Any

import gymnasium
from gymnasium import spaces

from warren.errors import ConfigurationError


class LegacyEnv(gymnasium.Env):
    """Adapts an object with `reset`, `step` and the two spaces.

    `reset` may return the observation or (observation, info) and may or may not take a seed; `step` may return gym's
    old (observation, reward, done, info) or gymnasium's five values. Spaces of old gym become gymnasium's. An episode
    that is not over after `max_episode_steps` is truncated, as by gymnasium's TimeLimit, but without another call in
    every step.
    """

    def __init__(self, env: Any, max_episode_steps: float = math.inf) -> None:
        missing = [name for name in ("observation_space", "action_space", "reset", "step") if not hasattr(env, name)]
        if missing:
            raise ConfigurationError(f"environment {type(env).__name__!r} has no {', no '.join(missing)}")
        self.env, self._step = env, env.step
        self._limit, self._elapsed = max_episode_steps, 0
        self.observation_space = convert_space(env.observation_space)
        self.action_space = convert_space(env.action_space)
        self.metadata = getattr(env, "metadata", None) or {}
        self.render_mode = getattr(env, "render_mode", None)
        parameters = inspect.signature(env.reset).parameters.values()
        anything = any(p.kind is p.VAR_KEYWORD for p in parameters)
        self._reset_takes = [k for k in ("seed", "options") if anything or k in {p.name for p in parameters}]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._elapsed = 0
        if seed is not None and "seed" not in self._reset_takes and hasattr(self.env, "seed"):
            self.env.seed(seed)
        given = {"seed": seed, "options": options}
        result = self.env.reset(**{name: given[name] for name in self._reset_takes})
        if isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict):
            return result
        return result, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        result: tuple[Any, ...] = self._step(action)
        self._elapsed += 1
        late = self._elapsed >= self._limit
        if len(result) == 5:
            return (*result[:3], True, result[4]) if late else result
        observation, reward, done, info = result
        truncated = bool(done) and bool(info.get("TimeLimit.truncated", False))
        return observation, reward, bool(done) and not truncated, truncated or late, info

    def render(self) -> Any:
        return self.env.render()

    def close(self) -> None:
        if hasattr(self.env, "close"):
            self.env.close()


def convert_space(space: Any) -> spaces.Space[Any]:
    """Return the gymnasium space equal to `space`, which may be old gym's, recognised by its class name."""
    if isinstance(space, spaces.Space):
        return space
    match type(space).__name__:
        case "Box":
            return spaces.Box(space.low, space.high, space.shape, space.dtype)
        case "Discrete":
            return spaces.Discrete(int(space.n), start=int(getattr(space, "start", 0)))
        case "MultiDiscrete":
            return spaces.MultiDiscrete(space.nvec)
        case "MultiBinary":
            return spaces.MultiBinary(space.n)
        case "Tuple":
            return spaces.Tuple([convert_space(part) for part in space.spaces])
        case "Dict":
            return spaces.Dict({key: convert_space(part) for key, part in space.spaces.items()})
        case other:
            raise ConfigurationError(f"space {other!r} ({space!r}) has no counterpart in gymnasium")
