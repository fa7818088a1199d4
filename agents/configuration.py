"""From a plain dict of settings to a frozen dataclass: unknown names and wrong types are refused, all at once."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, TypeVar

from warren.errors import ConfigurationError, unknown_name

T = TypeVar("T")


def parse(config_class: type[T], owner: str, config: Mapping[str, Any]) -> T:
    """Return `config` as a `config_class`, whose __post_init__ checks ranges; errors name `owner` ("ppo").

    Whole numbers are taken for floats, lists for tuples. Raises ConfigurationError.
    """
    hints = typing.get_type_hints(config_class)
    known = {field.name: field for field in fields(config_class)}  # type: ignore[arg-type]
    problems = [unknown_name(f"setting of {owner}", str(name), known) for name in config if name not in known]
    problems += [
        f"{owner} needs the setting {name!r}"
        for name, field in known.items()
        if name not in config and field.default is MISSING and field.default_factory is MISSING
    ]
    values = {}
    for name, value in config.items():
        if name in known:
            try:
                values[name] = _convert(value, hints[name])
            except TypeError as error:
                problems.append(f"setting {name!r} of {owner} must be {error}, is {value!r}")
    if problems:
        raise ConfigurationError(problems)
    return config_class(**values)


def _convert(value: Any, hint: Any) -> Any:
    """Return `value` as `hint` allows it. Raises TypeError, which names the wanted type."""
    if isinstance(hint, types.UnionType):
        wanted = []
        for part in typing.get_args(hint):
            try:
                return _convert(value, part)
            except TypeError as error:
                wanted.append(str(error))
        raise TypeError(" or ".join(wanted))
    if hint is types.NoneType:
        if value is not None:
            raise TypeError("null")
        return None
    if typing.get_origin(hint) is tuple:
        item = typing.get_args(hint)[0]
        if not isinstance(value, list | tuple):
            raise TypeError(f"a list of {item.__name__}")
        return tuple(_convert(part, item) for part in value)
    if isinstance(origin := typing.get_origin(hint), type):  # Mapping[str, Any] and the like
        if not isinstance(value, origin):
            raise TypeError("a table" if issubclass(origin, Mapping) else "a list")
        return value
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        raise TypeError(
            {"float": "a number", "int": "a whole number", "bool": "true or false"}.get(hint.__name__, "text")
        )
    return value
