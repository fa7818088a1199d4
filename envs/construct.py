"""Errors of user environments as one sentence that names the line and the remedy."""

from __future__ import annotations

import importlib
from types import ModuleType

from warren.errors import ConfigurationError
from warren.user_code import blame, call, copies, install, pip, where

__all__ = ["blame", "call", "copies", "pip", "require", "where"]


def require(module: str, package: str, env_id: str) -> ModuleType:
    """Return the module of an optional package.

    Raises ConfigurationError, which says what to install, if it is missing.
    """
    try:
        importlib.import_module(module.partition(".")[0])
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"environment {env_id!r} needs the package {package} ({error.name} is missing); {install(module)}"
        ) from error
