"""The public names, each imported from its package at its first use, and the modules that every package may use.

__init__.pyi alone says where each name is. It is read here as data, so this lowest package imports none above it; type
checkers read it as a stub.
"""

import ast
import importlib
from functools import cache
from pathlib import Path
from typing import Any

__version__ = "0.1.0"


@cache
def _places() -> dict[str, str]:
    stub = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [one for one in stub.body if isinstance(one, ast.ImportFrom) and one.module]
    return {name.name: str(one.module) for one in imports for name in one.names}


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return [*_places()]
    if name.startswith("_") or name not in _places():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_places()[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_places()})
