"""gymnasium's environments: "CartPole-v1", "gymnasium:CartPole-v1", or "module:ID" of one that a module registers."""

from __future__ import annotations

import contextlib
import importlib
import sys
from typing import Any

import gymnasium
from gymnasium import error

from envs.construct import blame, pip
from envs.settings import EnvSettings
from warren.errors import ConfigurationError, UnknownName
from warren.user_code import module_of, requirement

# Namespace of an id -> (the module that registers it when it is imported, the package that brings it).
NAMESPACES = {"ALE": ("ale_py", "Atari games")}
ATARI = "ale_py"  # also registers ids from before namespaces, such as PongNoFrameskip-v4


def make(name: str, **kwargs: Any) -> gymnasium.Env:
    """Return the environment registered with gymnasium as `name`. Raises UnknownName, ConfigurationError."""
    with blame(f"environment {name!r} of gymnasium"):
        registered = _register(name)
        try:
            return gymnasium.make(registered, **kwargs)
        except (error.UnregisteredEnv, error.DeprecatedEnv) as unknown:
            raise UnknownName("environment", registered, gymnasium.registry, _remedy(name, unknown)) from None
        except error.DependencyNotInstalled as missing:
            raise ConfigurationError(
                f"environment {name!r} of gymnasium needs more packages: {_what_to_install(str(missing))}"
            ) from None


def preset(name: str, settings: EnvSettings) -> dict[str, Any]:
    """Return arguments by which an Atari emulator leaves frame skipping to the wrappers and gives grey screens."""
    with contextlib.suppress(error.Error):
        if str(gymnasium.spec(_register(name)).entry_point).startswith(ATARI):
            skipping = {"frameskip": 1} if settings.frame_skip else {}
            return {**skipping, "obs_type": "grayscale"} if settings.grey else skipping
    return {}


def reward_threshold(name: str) -> float | None:
    """Return the mean return at which `name` counts as solved, if its registration gives one."""
    with contextlib.suppress(error.Error, ConfigurationError):
        return gymnasium.spec(_register(name)).reward_threshold
    return None


def with_pip(message: str) -> str:
    """Return another library's message, with "pip" replaced by the command that works here."""
    return message.replace("pip install", f"{pip()} install")


def _what_to_install(message: str) -> str:
    for extra, library in (("box2d", "Box2D"), ("mujoco", "MuJoCo")):  # gymnasium says to build Box2D, which has wheels
        if extra in message.lower():
            return f"{library}, of Warren's extra `{extra}`; install it: {pip()} install {requirement(extra)}"
    return with_pip(message)


def _register(name: str) -> str:
    """Import what registers the environment, and return its id. Raises ConfigurationError if MODULE:ID cannot be."""
    if ":" in name:
        module_of("environment", name)
        return name.rpartition(":")[2]
    module, _ = NAMESPACES.get(name.partition("/")[0], (None, None))
    if module is None and name not in gymnasium.registry:
        module = ATARI
    if module is not None:
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(module)
    return name


def _remedy(name: str, unknown: error.Error) -> str:
    module, what = NAMESPACES.get(name.partition("/")[0], (None, None))
    if module is not None and sys.modules.get(module) is None:
        remedy = f"{pip()} install {requirement('atari')}"
        return f"{what} are of Warren's extra `atari` ({module} is missing); install it: {remedy}"
    if not isinstance(unknown, error.NameNotFound):
        return str(unknown)
    if name.endswith(".py"):
        return f"(a class or function of a file: {name}:NAME)"
    return "" if ":" in name else "(one that a package registers: MODULE:ID)"
