"""Games that drive their own sessions: "gamecore:path/to/file.py:MyActor" names the Actor that a gateway serves.

A learner uses only the spaces of such a game, which the class declares; the game cannot be stepped here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import gymnasium

from warren import user_code
from warren.errors import ConfigurationError

SOURCE = "gamecore"
_METHODS = ("start", "tick", "end", "act", "reward")  # methods of an Actor


def is_gamecore(env_id: str) -> bool:
    """Return True if the game of that id drives itself."""
    return env_id.startswith(f"{SOURCE}:")


def find(name: str) -> type[Any]:
    """Return the Actor class that `name` names. Raises UnknownName, ConfigurationError."""
    found = user_code.find("actor", name)
    if not (isinstance(found, type) and all(hasattr(found, method) for method in _METHODS)):
        raise ConfigurationError(f"actor {name!r} must be a class derived from workers.gateway.Actor")
    for attribute in ("observation_space", "action_space"):
        if not isinstance(getattr(found, attribute, None), gymnasium.Space):
            raise ConfigurationError(f"actor {name!r} must declare its {attribute}, one of gymnasium.spaces")
    actions: Any = getattr(found, "action_space", None)
    if getattr(found, "action_masks", False) and not isinstance(actions, gymnasium.spaces.Discrete):
        raise ConfigurationError(
            f"actor {name!r}: action_masks are of Discrete actions, and its action_space is {actions}"
        )
    return found


def has_masks(env_id: str) -> bool:
    """Return True if the environment's decisions come with masks of legal actions, as its Actor declares."""
    return is_gamecore(env_id) and bool(getattr(find(env_id.partition(":")[2]), "action_masks", False))


class Declared(gymnasium.Env[Any, Any]):
    """The spaces of a game that is played elsewhere."""

    def __init__(self, name: str, actor: type[Any]) -> None:
        self._name = name
        self.observation_space, self.action_space = actor.observation_space, actor.action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> NoReturn:
        raise self._drives_itself()

    def step(self, action: Any) -> NoReturn:
        raise self._drives_itself()

    def _drives_itself(self) -> ConfigurationError:
        return ConfigurationError(f"environment {SOURCE}:{self._name} drives itself: only gateways play it")


def make(name: str, **kwargs: Any) -> gymnasium.Env[Any, Any]:
    """Return a description of the game. `kwargs` are for the constructor of its actors, called per session."""
    return Declared(name, find(name))


def reward_threshold(name: str) -> None:
    """Return None: the threshold is unknown, since finding it would import the user's code."""


def unfit(settings: Any) -> list[str]:
    """Return the names of the given settings of `env` that only stepped environments have."""
    resolved: Mapping[str, Any] = vars(settings.resolved())
    preprocessing = ("leave_out", "frame_skip", "noop_start", "episodic_life", "grey", "resize", "frame_stack")
    return [name for name in ("workers", *preprocessing, "info_metrics") if resolved[name]]
