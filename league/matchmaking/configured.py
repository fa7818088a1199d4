"""A kind of player with its configuration, checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from league.matchmaking.base import DECISIONS, KINDS, MATCHES, Kind
from league.rules.run_share import parse_steps
from warren.errors import ConfigurationError, unknown_name

ALIKE = {bool: (bool,), int: (int,), float: (int, float), str: (str,)}  # type of a default -> types of its values


def kind_of(name: str, config: Mapping[str, Any] | None = None) -> Kind:
    """Return the kind called `name` with its configuration. Raises ConfigurationError that lists all problems."""
    kind, config = KINDS[name], dict(config or {})
    known = [field.name for field in fields(kind)]
    problems = [unknown_name(f"option of {name}", option, known) for option in config if option not in known]
    for option in kind.counted_in_steps:
        value = config.get(option)
        if option in config and (value is not None or option != "snapshot_every"):
            config[option] = parse_steps(value)
            if config[option] is None:
                problems.append(
                    f"{name}: {option}={value!r} is not a number of steps; use a whole one, or a share of the run, "
                    "above 0% and up to 100%, as 2%"
                )
    if problems:
        raise ConfigurationError(problems)
    for field in fields(kind):  # 1e3 in a file is a float
        value = config.get(field.name)
        if type(field.default) is int and isinstance(value, float) and value.is_integer():
            config[field.name] = int(value)
    try:
        made = kind(**config)
    except TypeError as error:  # a field without a default is missing
        raise ConfigurationError(f"{name}: {str(error).split('__init__() ')[-1]}") from None
    try:
        problems = list(_mistyped(made, config)) or made.problems()
    except TypeError as error:
        problems = [str(error)]
    if made.shares not in (DECISIONS, MATCHES):
        problems.append(f"shares={made.shares!r} is not {DECISIONS!r} or {MATCHES!r}")
    problems += _side_problems(made)
    if problems:
        raise ConfigurationError([f"{name}: {problem}" for problem in problems])
    return made


def _mistyped(kind: Kind, config: Mapping[str, Any]) -> Iterator[str]:
    """Yield the options of `kind` in `config` whose type is not that of their defaults."""
    for field in fields(kind):
        default, wanted = field.default, ALIKE.get(type(field.default))
        value = config.get(field.name, default)
        if wanted and field.name not in kind.counted_in_steps and type(value) not in wanted:
            yield f"{field.name}={value!r} has another type than its default, {default!r}; use one of that"


def _side_problems(kind: Kind) -> list[str]:
    """Return why players of `kind` cannot take one side alone, if its option `side` asks for that."""
    if kind.side is None:
        return []
    found = [] if type(kind.side) is int and kind.side >= 0 else [f"side={kind.side!r} is not the number of a team"]
    if not kind.takes_a_side or kind.needs_returns or kind.wants_looks:
        found.append(
            f"side={kind.side} is for kinds that choose by win rates, as main_agent does; a player of this one, or "
            "with freeze: returns, takes every side"
        )
    if getattr(kind, "self_share", 0.0):
        found.append(f"side={kind.side}: a player of one side cannot meet itself; leave self_share at 0")
    return found
