"""A user's own environments: "my.module:MyEnv" or "path/to/file.py:MyEnv", a class or any callable that makes one."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium

from envs.construct import blame
from envs.legacy import LegacyEnv
from envs.sources import of_a_league
from envs.two_player import TwoPlayerVectorEnv
from warren.errors import ConfigurationError, UnknownName


def make(env_id: str, **kwargs: Any) -> gymnasium.Env:
    """The environment that `env_id` names. Raises UnknownName, ConfigurationError."""
    factory = find(env_id)
    if isinstance(factory, type) and issubclass(factory, TwoPlayerVectorEnv):
        raise of_a_league(env_id)
    with blame(f"environment {env_id!r}"):
        env = factory(**kwargs)
        if isinstance(env, gymnasium.Env):
            return env
        if isinstance(env, TwoPlayerVectorEnv) or hasattr(env, "possible_agents"):  # the latter: PettingZoo's
            raise of_a_league(env_id)
        return LegacyEnv(env)


def find(env_id: str) -> Callable[..., Any]:
    """The class or function that `env_id` names. Raises UnknownName, ConfigurationError."""
    where, _, name = env_id.rpartition(":")
    module = _load_file(where, env_id) if where.endswith(".py") else _load_module(where, env_id)
    try:
        factory: Callable[..., Any] = getattr(module, name)
    except AttributeError:
        public = [known for known in vars(module) if not known.startswith("_")]
        raise UnknownName("environment", name, public, f"({where} has no such class or function)") from None
    return factory


def _load_module(name: str, env_id: str) -> ModuleType:
    with blame(f"importing {name!r} for environment {env_id!r}"):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name and (name == error.name or name.startswith(error.name + ".")):
                raise ConfigurationError(
                    f"environment {env_id!r}: there is no module {error.name!r}; for a module of your "
                    "own set PYTHONPATH or write path/to/file.py:Name; old gym's ids start with 'gym:'"
                ) from None
            raise


def _load_file(path: str, env_id: str) -> ModuleType:
    file = Path(path).expanduser().resolve()
    if not file.is_file():
        raise ConfigurationError(f"environment {env_id!r}: there is no file {file}")
    # Each file is run once a process, as an import is; the digest keeps two files of one name apart.
    name = f"{file.stem}_{hashlib.sha256(str(file).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))  # as for a script, its neighbours can be imported; last, so they hide nothing
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        with blame(f"importing {path!r} for environment {env_id!r}"):
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
