"""Tests of the names of `import warren`: stub and docs/names.md list them, and nothing is imported until used."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import warren
from tasks.service import register, service

PAGE = Path(__file__).resolve().parents[1] / "docs" / "names.md"


def test_the_page_has_a_line_for_every_name() -> None:
    assert sorted(re.findall(r"^- `(\w+)`: ", PAGE.read_text(), re.MULTILINE)) == sorted(warren.__all__)


@pytest.mark.parametrize("name", warren.__all__)
def test_every_name_is_what_its_module_holds(name: str) -> None:
    assert getattr(warren, name) is not None
    assert name in dir(warren)


def test_register_of_msagent_is_there_beside_service() -> None:
    assert warren.service is service
    assert warren.register is register


def test_importing_warren_imports_nothing_else() -> None:
    asked = "import sys, json, warren; warren.__version__; print(json.dumps([*sys.modules]))"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in json.loads(done.stdout)}
    assert not loaded & {
        "torch",
        "numpy",
        "celery",
        "kombu",
        "gymnasium",
        "tasks",
        "workers",
        "league",
        "agents",
        "envs",
    }


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Solvr'"):
        _ = warren.Solvr  # type: ignore[attr-defined]
