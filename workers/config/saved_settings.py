"""The settings in a run folder's YAML file, as names and values."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from warren.errors import ConfigurationError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")


def read_tree(path: Path) -> DictConfig:
    """Read the names and values in a run folder's YAML file. Raises ConfigurationError if it is damaged or empty."""
    try:
        loaded = OmegaConf.load(path)
        reason = "" if isinstance(loaded, DictConfig) and loaded else "it holds no settings"
    except (ValueError, yaml.YAMLError, OmegaConfBaseException) as error:
        mark = getattr(error, "problem_mark", None)
        reason = f"line {mark.line + 1}: {getattr(error, 'problem', error)}" if mark else str(error).splitlines()[0]
    if reason:
        remedy = "put a copy of it back, or the config.yaml of a run with the same settings"
        raise ConfigurationError(f"{path} is damaged ({reason}); {remedy}")
    assert isinstance(loaded, DictConfig)
    return loaded


def plain(settings: DataclassInstance) -> dict[str, Any]:
    """Return a dataclass of settings as dictionaries, with the names of choices."""

    def table(fields: Iterable[tuple[str, Any]]) -> dict[str, Any]:
        return {name: value.name if isinstance(value, Enum) else value for name, value in fields}

    return asdict(settings, dict_factory=table)


def naming(path: Path, read: Callable[[], T]) -> T:
    """Return what `read` returns; errors in the settings that it reads from `path` begin with that path."""
    try:
        return read()
    except ConfigurationError as error:
        raise ConfigurationError(
            problem if str(path) in problem else f"{path}: {problem}" for problem in error.problems
        ) from None
