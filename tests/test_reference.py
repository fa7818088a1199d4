"""Tests of the reference of `make site`: it has every public name, setting and command, with types and shapes."""

from __future__ import annotations

import importlib.util
import inspect
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import warren
from workers.command import PROGRAMS
from workers.config.described import meanings
from workers.config.schema import Config

HOOKS = Path(__file__).resolve().parents[1] / "docs" / "hooks.py"
ARRAYS, HELD = re.compile(r"\b(ndarray|Tensor)\b"), re.compile(r"\b(dict|Mapping|Sequence)\[[^\[\]]*\]")
SHAPE = re.compile(r"\[[^\]]*\]|\bscalar\b")


@cache
def hooks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hooks", HOOKS)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def functions(name: str) -> Iterator[tuple[str, Callable[..., Any], str | None]]:
    """Yield (name, function, docstring) of a public function, or of a class's own public methods."""
    value = getattr(warren, name)
    if inspect.isfunction(value):
        yield name, value, value.__doc__
    elif inspect.isclass(value):
        for attribute, held in vars(value).items():
            method = held.fget if isinstance(held, property) else getattr(held, "__func__", held)
            if not attribute.startswith("_") and inspect.isfunction(method):
                yield f"{name}.{attribute}", method, inspect.getdoc(getattr(value, attribute))


@pytest.mark.parametrize("name", [name for name in warren.__all__ if not name.isupper()])
def test_each_public_name_says_what_it_is_and_takes(name: str) -> None:
    assert (getattr(warren, name).__doc__ or "").strip()
    for place, function, said in functions(name):
        assert said, f"{place} has no docstring"
        parameters = [one for one in inspect.signature(function).parameters.values() if one.name not in ("self", "cls")]
        bare = [one.name for one in parameters if one.annotation is one.empty]
        assert bare == [], f"{place} does not say of what types these are"
        if any(ARRAYS.search(HELD.sub("", str(one))) for one in function.__annotations__.values()):
            assert SHAPE.search(said), f"{place} takes or returns arrays and says nothing of their shapes"


def test_the_reference_has_every_public_name() -> None:
    page = "\n".join(hooks().api())
    named = re.findall(r"^(?:::: |### `)[\w.]+\.(\w+)`?$", page, re.MULTILINE)
    assert sorted(named) == sorted(warren.__all__)


def test_the_reference_has_every_setting_with_its_meaning() -> None:
    rows = dict(re.findall(r"^\| `([\w.]+)` \| (.*) \|$", "\n".join(hooks().settings()), re.MULTILINE))
    assert set(Config.__dataclass_fields__) - {name.partition(".")[0] for name in rows} == set()
    assert len(rows) > 200
    # A setting without a meaning is a table, whose own settings are listed.
    bare = [name for name, meaning in meanings("ppo", "mlp").items() if not meaning]
    assert [name for name in bare if not any(row.startswith(f"{name}.") for row in rows)] == []


def test_the_reference_has_every_command() -> None:
    page = "\n".join(hooks().commands())
    assert set(re.findall(r"^\| `warren ([\w-]+)`", page, re.MULTILINE)) == {
        name for programs in PROGRAMS.values() for name in programs
    }
