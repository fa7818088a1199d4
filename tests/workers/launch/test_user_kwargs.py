"""Tests of the option --kwargs of processes with code of the user's own."""

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
