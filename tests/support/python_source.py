"""Python files as syntax trees, for tests of the code as text."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from pathlib import Path


def parsed(path: Path) -> ast.Module:
    """Return a file's tree.

    Garbage collection is off meanwhile: it may log a traceback, which parses too, and Python 3.11.7 fails when a
    parse runs within another (gh-106905).
    """
    gc.disable()
    try:
        return ast.parse(path.read_text())
    finally:
        gc.enable()


def nodes(path: Path) -> Iterator[ast.AST]:
    """Return all nodes of a file's tree, each once."""
    return ast.walk(parsed(path))
