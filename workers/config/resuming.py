"""The settings of a resumed run: those that it keeps, and those that a command line may change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from functools import cache
from typing import Any

from workers.config.schema import Config, EnvConfig


def _fixed(settings: Any) -> set[str]:
    return {one.name for one in fields(settings) if one.metadata.get("fixed_on_resume")}


SETTINGS = _fixed(Config) | {"experiment"}  # `experiment` chooses the files of several tables
# Tables in which the choice of a file and some settings are fixed; any other is fixed as a whole or not at all.


@cache
def _tables() -> dict[str, set[str]]:
    from workers.config.league import LeagueConfig  # imports torch, which a launcher does not import

    return {"env": _fixed(EnvConfig), "league": _fixed(LeagueConfig), "algorithm": {"name"}}


def is_fixed(name: str) -> bool:
    """Return whether a resumed run keeps the setting `name`, such as "env.id"."""
    table, dot, rest = name.partition(".")
    if dot and table in _tables():
        return rest.partition(".")[0] in _tables()[table]
    return table in SETTINGS


def changes(overrides: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the overrides that change a resumed run, in the names of its configuration, and errors for the others.

    `resume` and `folder`, which only say where the run is, are left out of both.
    """
    taken, problems = [], []
    for override in overrides:
        name, _, value = override.lstrip("+~").partition("=")
        if name in ("resume", "folder"):
            continue
        if is_fixed(name):
            problems.append(f"{override}: cannot be changed when a run is resumed; start a new run for it")
        else:
            taken.append(f"broker.mode={value}" if name == "broker" else override)
    return taken, problems
