"""Tests of the command lines of processes with code of the user's own: --kwargs, and no run."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.launched import command


@pytest.mark.parametrize("module", ["workers.script", "workers.serve"])
@pytest.mark.parametrize(("given", "why"), [("{lr: 0.1}", "is not JSON"), ("[0.1]", "is not a JSON object")])
def test_arguments_that_are_no_json_object_are_one_error(tmp_path: Path, module: str, given: str, why: str) -> None:
    (tmp_path / "mine.py").write_text("print('it ran')")
    done = command(module, str(tmp_path / "mine.py"), "--kwargs", given)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(f"error: --kwargs: {given!r} {why}") and "write it as" in done.stderr


@pytest.mark.parametrize("module", ["workers.script", "workers.serve"])
def test_code_that_needs_a_run_is_one_error_outside_of_one(tmp_path: Path, module: str) -> None:
    (tmp_path / "mine.py").write_text("from warren import Solver\n\ndef play():\n    Solver()\n")
    done = command(module, f"{tmp_path / 'mine.py'}:play")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert "this process belongs to no run (" in done.stderr and "WARREN_RUN not set" in done.stderr
    assert (f"{tmp_path / 'mine.py'}:4: " in done.stderr) == (module == "workers.script")


def test_a_bug_of_a_script_outside_of_a_run_keeps_its_traceback(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("1 / 0\n")
    done = command("workers.script", str(tmp_path / "mine.py"))
    assert done.returncode == 1 and "Traceback" in done.stderr and "ZeroDivisionError" in done.stderr
