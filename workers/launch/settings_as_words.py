"""Settings by name, with values of Python, written as words of a command line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from warren.errors import ConfigurationError

WHOLE = ("hosts",)  # tables that are given as one value: their names are the user's
PLAIN = re.compile(r"[A-Za-z_./][\w./:@-]*")  # text that needs no quotes
READ_OTHERWISE = {"true", "false", "null", "nan", "inf", "yes", "no", "on", "off"}


def words(overrides: Iterable[str], settings: Mapping[str, Any]) -> list[str]:
    """Return the words for `overrides`, which are words already, and `settings`: a table's as dotted names.

    Raises ConfigurationError for an override that is not text, and a value that no command line can hold.
    """
    if wrong := [one for one in overrides if not isinstance(one, str)]:
        raise ConfigurationError([f"{one!r} is not a word name=value of a command line" for one in wrong])
    return [*overrides, *_of_table("", settings)]


def _of_table(prefix: str, table: Mapping[str, Any]) -> Iterator[str]:
    for name, value in table.items():
        full = f"{prefix}{name}"
        if isinstance(value, Mapping) and value and full not in WHOLE:
            yield from _of_table(f"{full}.", value)
        else:
            yield f"{full}={_literal(full, value)}"


def _literal(name: str, value: Any) -> str:
    if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:  # a number of NumPy
        value = value.item()
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case int() | float():
            return repr(value)
        case str() | Path():
            return _text(str(value))
        case Mapping():
            return "{" + ",".join(f"{_text(str(key))}:{_literal(name, one)}" for key, one in value.items()) + "}"
        case list() | tuple():
            return "[" + ",".join(_literal(name, one) for one in value) + "]"
    raise ConfigurationError(f"{name}: {value!r} is not a value of a setting; give numbers, text, lists and tables")


def _text(text: str) -> str:
    if PLAIN.fullmatch(text) and text.lower() not in READ_OTHERWISE:
        return text
    escaped = re.sub(r"(\\*)'", r"\1\1\\'", text)  # in Hydra's quotes a backslash counts only before a quote
    trailing = len(escaped) - len(escaped.rstrip("\\"))
    return f"'{escaped}{chr(92) * trailing}'"
