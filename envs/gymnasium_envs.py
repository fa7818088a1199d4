"""gymnasium's own environments: "CartPole-v1", or "gymnasium:CartPole-v1"."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium import error

from envs.construct import blame
from warren.errors import UnknownName


def make(name: str, **kwargs: Any) -> gymnasium.Env:
    """The environment registered with gymnasium as `name`. Raises UnknownName, ConfigurationError."""
    with blame(f"environment {name!r} of gymnasium"):
        try:
            return gymnasium.make(name, **kwargs)
        except (error.UnregisteredEnv, error.DeprecatedEnv) as unknown:
            remedy = "" if isinstance(unknown, error.NameNotFound) else str(unknown)
            raise UnknownName("environment", name, gymnasium.registry, remedy) from None
