"""Tests of `make horovod`: it says what a build lacks, and keeps one wheel per version of Python and torch."""

from __future__ import annotations

import sysconfig
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from warren.errors import WarrenError
from workers.learning.allreduce import build_horovod


def test_a_machine_without_a_compiler_is_told_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WARREN_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(build_horovod, "works", lambda: False)
    monkeypatch.setattr(sysconfig, "get_config_var", lambda name: str(tmp_path))
    assert build_horovod.main(["--if-cached"]) == 0
    assert build_horovod.main([]) == 2
    said = capsys.readouterr().err
    assert "Horovod cannot be built without a C++ compiler (c++): on Debian or Ubuntu, apt-get install g++" in said
    assert "Horovod cannot be built without Python's headers (Python.h): on Debian or Ubuntu, apt-get install" in said
    assert "Horovod cannot be built without cmake: apt-get install cmake, or pip install cmake" in said


def test_sources_of_another_release_are_not_patched(tmp_path: Path) -> None:
    for name, (before, _) in build_horovod.MENDS.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"first\n{before}\nlast\n")
    build_horovod.mend(tmp_path)
    for name, (_, after) in build_horovod.MENDS.items():
        assert (tmp_path / name).read_text() == f"first\n{after}\nlast\n"
    with pytest.raises(WarrenError, match=r"horovod/__init__.py of Horovod 0.28.1 has not the lines"):
        build_horovod.mend(tmp_path)


def test_the_built_version_satisfies_the_extra() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    asked = {one.name: one for one in map(Requirement, project["optional-dependencies"]["horovod"])}
    assert asked["horovod"].specifier.contains(build_horovod.VERSION)
    assert set(asked) == {"horovod", *build_horovod.NEEDED}
    assert "horovod" not in {Requirement(one).name for one in project["dependencies"]}


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
