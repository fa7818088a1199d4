"""docs/algorithms.md lists all operators and schedules."""

import ast
import re
from dataclasses import fields
from pathlib import Path

from support.python_source import parsed

from agents.operators.schedules import SCHEDULES

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs/algorithms.md").read_text()
NOT_LISTED = {"unrolls.py", "blocks.py", "schedules.py"}  # parts of returns, parts of networks, tested below
HELPERS = {"masked_log_softmax", "merge", "Moments", "VTrace"}


def test_every_operator_is_on_the_page_with_its_file():
    rows = [row for row in PAGE.splitlines() if row.startswith("| `")]
    for path in (ROOT / "agents/operators").glob("*.py"):
        if path.name in NOT_LISTED:
            continue
        for node in parsed(path).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                listed = any(f"`{node.name}`" in row and f"`{path.name}`" in row for row in rows)
                assert listed or node.name in HELPERS, f"{path.name}: {node.name}"


def test_every_schedule_is_on_the_page_with_its_settings():
    for name in SCHEDULES:
        (row,) = re.findall(rf"^\| `{name}`[^|]*\|([^|]*)\|", PAGE, re.MULTILINE)
        assert re.findall(r"`(\w+)", row) == [field.name for field in fields(SCHEDULES[name])]
