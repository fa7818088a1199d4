"""`--help` of `python -m workers.train` and of each role: its settings, their values, types, and what they mean."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

import hydra
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

from workers.config import described, roles
from workers.config.overrides import options_of_group
from workers.config.schema import CONF

# Settings that a role reads from its own command line, beside its number and device. All others are the run's.
EVERY_ROLE = ("run", "broker.*", "log_level", "log_format", "metrics.*", "grace")
OF_FOLDER = ("folder", "project", "trial")
OF_ROLE = {
    "learner": ("player", "learner_threads", "compile", "restore"),
    "gateway": ("gateway.*",),
    "flower": ("flower_*", "task_events"),
}


def text(role_name: str, overrides: list[str]) -> Iterator[str]:
    """Yield the lines of help of a role, or of `train`, with the settings' values after the overrides."""
    with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        try:
            composed = hydra.compose(role_name, overrides, return_hydra_config=True)
            told = OmegaConf.to_container(composed.hydra.help, resolve=True)
            OmegaConf.set_struct(composed, False)
            del composed["hydra"]
            groups = list(_groups())
            values: Any = OmegaConf.to_container(composed, resolve=True)
        finally:
            GlobalHydra.instance().clear()
    assert isinstance(told, dict)
    role = roles.find(role_name)
    chosen = [str((values.get(one) or {}).get("name", "")) for one in ("algorithm", "network")]
    known, types = described.meanings(*chosen), described.types(*chosen)
    settings = [(name, value, f"{_type(types, name)}{known.get(name, '')}") for name, value in flat(values)]
    yield str(told["header"])
    if role is None:
        yield "\nGroups, chosen as group=option:"
        yield from groups
        yield "\nSettings, their values and what they mean:"
        yield from described.lines(settings)
        if not values.get("league"):
            yield "  league.NAME=VALUE              a league's setting: --help league=kuhn lists them"
    else:
        own = _own(role)
        yield "\nSettings of this process, their values and what they mean:"
        yield from described.lines(one for one in settings if any(fnmatchcase(one[0], pattern) for pattern in own))
        yield "\nAll other settings are those of the run that it joins; python -m workers.train --help lists them."
    yield f"\n{told['footer']}"


def _own(role: roles.Role) -> tuple[str, ...]:
    given = (role.id, role.device, role.switch)
    folder = () if role.keeps is roles.Keeps.nobody else OF_FOLDER
    return (*EVERY_ROLE, *folder, *(one for one in given if one is not None), *OF_ROLE.get(role.name, ()))


def _type(types: Mapping[str, str], name: str) -> str:
    return f"[{types[name]}] " if name in types else ""


def flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield (dotted name, value as it is typed) of each setting."""
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", described.typed(value)


def _groups() -> Iterator[str]:
    for name in sorted({*GlobalHydra.instance().config_loader().list_groups("")} - {"hydra", "schema"}):
        if options := ", ".join(options_of_group(name)):
            yield textwrap.fill(f"  {name}: {options}", described.WIDTH, subsequent_indent="    ")
