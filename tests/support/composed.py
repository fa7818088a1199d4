"""Settings as a command line gives them, for tests of other things: Hydra composes each choice of groups only once."""

from __future__ import annotations

import copy
import functools

import hydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

from workers.config.schema import CONF, Config, from_hydra

GROUPS = {folder.name for folder in CONF.iterdir() if folder.is_dir()} | {"broker"}


def configured(role: str, *overrides: str) -> Config:
    """Return the configuration of `python -m workers.ROLE OVERRIDES`."""
    return from_hydra(settings(role, *overrides))


def settings(role: str, *overrides: str) -> DictConfig:
    """Return what `hydra.compose` returns. Raises OmegaConf's own error for a setting that it refuses."""
    parsed = OverridesParser.create().parse_overrides([*overrides])
    if not all(_chooses(one) or _sets(one) for one in parsed):
        return by_hydra(role, overrides)
    found = copy.deepcopy(chosen(role, tuple(str(one.input_line) for one in parsed if _chooses(one))))
    for one in parsed:
        if _sets(one):
            OmegaConf.update(found, one.key_or_group, one.value(), merge=True, force_add=one.is_force_add())
    return found


def by_hydra(role: str, overrides: tuple[str, ...]) -> DictConfig:
    """Let Hydra compose."""
    with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        return hydra.compose(role, [*overrides])


chosen = functools.cache(by_hydra)


def _chooses(one: Override) -> bool:
    """Return whether an override chooses an option of a group."""
    return one.key_or_group in GROUPS and one.package is None and isinstance(one.value(), str)


def _sets(one: Override) -> bool:
    """Return whether an override only sets a value."""
    plain = one.key_or_group not in GROUPS and not one.key_or_group.startswith("hydra")
    return plain and one.package is None and not one.is_sweep_override() and not (one.is_add() or one.is_delete())
