"""Tests of the page on troubleshooting: its messages are in the code, and those of wrong settings are raised here."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest
from support.python_source import nodes

from warren.errors import ConfigurationError
from workers.config.overrides import compose, settings_of
from workers.config.schema import from_hydra
from workers.config.validation import verify

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "troubleshooting.md"
PACKAGES = ("warren", "tasks", "workers", "league", "agents", "envs")
VALUE = "\0"  # stands for a name or number that the code inserts


def rows() -> list[str]:
    """Return the messages in the table's first column."""
    return re.findall(r"^\| `([^`]+)` \|", PAGE.read_text(), re.MULTILINE)


def text(node: ast.expr) -> str | None:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else VALUE for part in node.values)
    return None


@cache
def messages() -> str:
    """Return every string of the code, one per line."""
    found = set()
    for path in (path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        for node in nodes(path):
            if isinstance(node, ast.JoinedStr | ast.Constant) and (one := text(node)) and len(one) > 10:
                found.add(one.replace("\n", " "))
    return "\n".join(sorted(found))


def in_code(row: str) -> bool:
    """Return whether a string of the code has the row's parts in order, with a value between each two."""
    parts = [re.escape(part) for part in row.removeprefix("...").removesuffix("...").split("...")]
    return re.search(f"[^\n]*{VALUE}[^\n]*".join(parts), messages()) is not None


def in_text(row: str, text: str) -> bool:
    """Return whether a message fits the row: its parts in order, with at most one value between each two."""
    parts = row.removeprefix("...").removesuffix("...").split("...")
    return re.search(f"[^\n]*(?:{VALUE}[^\n]*)?".join(map(re.escape, parts)), text) is not None


def refused() -> dict[str, list[str]]:
    """Return subpackage -> messages of its ConfigurationErrors, without those that are values alone."""
    found: dict[str, list[str]] = {}
    for path in (path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        family = "/".join(path.relative_to(ROOT).parent.parts[:2])
        for node in nodes(path):
            if not (isinstance(node, ast.Call) and ast.unparse(node.func) == "ConfigurationError" and node.args):
                continue
            if (one := text(node.args[0])) and len(one.replace(VALUE, "")) > 15:
                found.setdefault(family, []).append(one)
    return found


def test_each_family_of_wrong_settings_is_on_the_page() -> None:
    assert len(refused()) > 10
    assert [
        family for family, said in refused().items() if not any(in_text(row, told) for told in said for row in rows())
    ] == []


@pytest.mark.parametrize("row", rows())
def test_each_message_of_the_page_is_in_the_code(row: str) -> None:
    assert in_code(row)


def test_a_message_that_is_not_in_the_code_is_found() -> None:
    assert len(rows()) > 60 and not in_code("the ... of this run has ... moons")


@pytest.mark.parametrize(
    ("settings", "row"),
    [
        (["actors=0"], "...: ... is too small; it must be at least ..."),
        (["env.id=CartPol-v1"], "... does not exist; ..."),
        (["algorithm.minibatch_size=100000"], "algorithm.minibatch_size: ... is more than the ... steps of an update"),
        (["learners=3"], "... cannot share the ... segments of an update equally; choose ... as a multiple of ..."),
        (["device=cuda:99"], "...=... is not there: this machine has ..."),
    ],
)
def test_a_wrong_setting_raises_the_message_on_the_page(settings: list[str], row: str) -> None:
    assert row in rows()
    found = compose("train", settings)
    assert found is not None
    with pytest.raises(ConfigurationError) as error:
        verify(from_hydra(settings_of(found)), "train")
    assert any(re.search(".*".join(map(re.escape, row.split("..."))), one) for one in error.value.problems)
