"""Tests of rules that no linter has: first words of docstrings, sizes, names of tests, cycles of imports."""

from __future__ import annotations

import ast
import graphlib
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.python_source import nodes

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("warren", "tasks", "league", "agents", "envs", "workers", "benchmarks")
NO_VERB = {"What", "Who", "Which", "Where", "Whether", "How", "Of", "As", "That"}
LINES_OF_A_CLASS, LINES_OF_A_FILE, LINES_OF_A_FUNCTION = 250, 320, 60
CHARACTERS_OF_A_TEST = 80


def tracked(*places: str) -> list[Path]:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    listed = subprocess.run(["git", "ls-files", "-z", *places], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("no checkout: git lists no files")
    return [path for name in listed.stdout.split("\0") if name.endswith(".py") and (path := ROOT / name).exists()]


def documented(path: Path) -> Iterator[str]:
    for node in nodes(path):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if words := (ast.get_docstring(node) or "").split():
            yield words[0].rstrip(",:")


def lines(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def test_docstrings_begin_with_a_verb_or_a_noun() -> None:
    found = [f"{path.relative_to(ROOT)}: {word}" for path in tracked() for word in documented(path) if word in NO_VERB]
    assert found == []


def test_files_of_tests_have_names_of_their_own() -> None:
    """Test folders are not packages: of two files with one name, pytest would import the first twice."""
    names = Counter(path.name for path in tracked("tests") if path.name.startswith("test_"))
    assert [name for name, count in names.items() if count > 1] == []


def test_names_of_tests_are_short() -> None:
    found = [
        node.name
        for path in tracked("tests")
        for node in nodes(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and len(node.name) > CHARACTERS_OF_A_TEST
    ]
    assert not found, "\n".join(found)


def test_files_classes_and_functions_are_small() -> None:
    found = []
    for path in tracked(*PACKAGES):
        where = path.relative_to(ROOT)
        if (length := path.read_text().count("\n")) > LINES_OF_A_FILE:
            found.append(f"{where}: {length} lines")
        for node in nodes(path):
            if isinstance(node, ast.ClassDef) and lines(node) > LINES_OF_A_CLASS:
                found.append(f"{where}: class {node.name} has {lines(node)} lines")
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and lines(node) > LINES_OF_A_FUNCTION:
                found.append(f"{where}: {node.name} has {lines(node)} lines")
    assert not found, "\n".join(found)


def test_no_module_imports_itself_through_others() -> None:
    """Imports inside functions and imports for types alone count too."""
    modules = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in tracked(*PACKAGES)
    }
    graph = {name: {to for to in imported(path, modules) if to != name} for name, path in modules.items()}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def imported(path: Path, modules: dict[str, Path]) -> Iterator[str]:
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            inside = [name for name in names if name in modules]
            yield from inside
            if len(inside) < len(names) and node.module in modules:
                yield node.module


def test_text_is_read_and_written_as_utf_8_whatever_the_locale() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in tracked(*(package for package in PACKAGES if package != "benchmarks"))
        for node in nodes(path)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("read_text", "write_text")
        and "encoding" not in [keyword.arg for keyword in node.keywords]
    ]
    assert found == []
