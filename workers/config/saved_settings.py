"""The settings in a run folder's YAML file, as names and values."""

from __future__ import annotations

from pathlib import Path

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from warren.errors import ConfigurationError


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
