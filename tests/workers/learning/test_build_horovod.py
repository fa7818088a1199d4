"""`make horovod` says what a build lacks, and keeps what was built by the versions that it is for."""

from __future__ import annotations

from pathlib import Path

import pytest

from workers.learning.allreduce import build_horovod


def test_a_machine_without_a_compiler_is_told_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WARREN_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(build_horovod, "works", lambda: False)
    assert build_horovod.main(["--if-cached"]) == 0
    assert build_horovod.main([]) == 2
    said = capsys.readouterr().err
    assert "Horovod cannot be built without a C++ compiler (c++): on Debian or Ubuntu, apt-get install g++" in said
    assert "Horovod cannot be built without cmake: apt-get install cmake, or pip install cmake" in said


def test_a_wheel_is_kept_for_the_python_and_the_torch_that_it_was_built_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARREN_CACHE", str(tmp_path))
    assert build_horovod.cached() is None
    build_horovod.folder().mkdir(parents=True)
    wheel = build_horovod.folder() / "horovod.whl"
    wheel.touch()
    assert build_horovod.cached() == wheel
    monkeypatch.setattr(build_horovod, "_torch", lambda: "9.9.9")
    assert build_horovod.cached() is None
