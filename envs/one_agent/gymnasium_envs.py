"""gymnasium's own environments: "CartPole-v1", or "gymnasium:CartPole-v1"."""

from __future__ import annotations

import contextlib
import importlib
import sys
from pathlib import Path
from typing import Any

import gymnasium
from gymnasium import error

from envs.construct import blame, pip
from envs.settings import EnvSettings
from warren.errors import ConfigurationError, UnknownName
from warren.user_code import make_importable, requirement

# Namespace of an id -> (the module that registers it when it is imported, the package that brings it).
NAMESPACES = {"ALE": ("ale_py", "Atari games")}
ATARI = "ale_py"  # also registers ids of before namespaces, as PongNoFrameskip-v4


def make(name: str, **kwargs: Any) -> gymnasium.Env:
    """Return the environment registered with gymnasium as `name`. Raises UnknownName, ConfigurationError."""
    with blame(f"environment {name!r} of gymnasium"):
        _register(name)
        try:
            return gymnasium.make(name, **kwargs)
        except (error.UnregisteredEnv, error.DeprecatedEnv) as unknown:
            raise UnknownName("environment", name, gymnasium.registry, _remedy(name, unknown)) from None
        except error.DependencyNotInstalled as missing:
            raise ConfigurationError(
                f"environment {name!r} of gymnasium needs more packages: {_what_to_install(str(missing))}"
            ) from None


def preset(name: str, settings: EnvSettings) -> dict[str, Any]:
    """Return the constructor's arguments that `settings` imply: the emulator leaves their work to them."""
    with contextlib.suppress(error.Error):
        _register(name)
        if str(gymnasium.spec(name).entry_point).startswith(ATARI):
            skipping = {"frameskip": 1} if settings.frame_skip else {}
            return {**skipping, "obs_type": "grayscale"} if settings.grey else skipping
    return {}


def reward_threshold(name: str) -> float | None:
    """Return the mean return at which `name` counts as solved, where its registration says so."""
    with contextlib.suppress(error.Error, ModuleNotFoundError):
        _register(name)
        return gymnasium.spec(name).reward_threshold
    return None


def with_pip(message: str) -> str:
    """Somebody else's message, with "pip" as it is typed here."""
    return message.replace("pip install", f"{pip()} install")


def _what_to_install(message: str) -> str:
    if "box2d" in message.lower():  # gymnasium would have it built; there are wheels
        return f"Box2D, of Warren's extra `box2d`; install it: {pip()} install {requirement('box2d')}"
    return with_pip(message)


def _register(name: str) -> None:
    module, _ = NAMESPACES.get(name.partition("/")[0], (None, None))
    if module is None and name not in gymnasium.registry and ":" not in name:
        module = ATARI
    if ":" in name:  # MODULE:ID, where the module may be one of the user's in the working directory
        make_importable(Path.cwd())
    if module is not None:
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(module)


def _remedy(name: str, unknown: error.Error) -> str:
    module, what = NAMESPACES.get(name.partition("/")[0], (None, None))
    if module is not None and sys.modules.get(module) is None:
        remedy = f"{pip()} install {requirement('atari')}"
        return f"{what} are of Warren's extra `atari` ({module} is missing); install it: {remedy}"
    return "" if isinstance(unknown, error.NameNotFound) else str(unknown)
