"""Python files as syntax trees, for tests of the code as text."""

from __future__ import annotations

import ast
import gc
from functools import cache
from pathlib import Path


@cache
def parsed(path: Path) -> ast.Module:
    """Return a file's tree, parsed once.

    Meanwhile no garbage is collected: that may log a traceback, which parses too, and Python 3.11.7 takes a parse
    within a parse for an error (gh-106905).
    """
    gc.disable()
    try:
        return ast.parse(path.read_text())
    finally:
        gc.enable()


@cache
def nodes(path: Path) -> list[ast.AST]:
    """Return all nodes of a file's tree, each once."""
    return [*ast.walk(parsed(path))]
