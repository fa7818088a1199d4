"""Tests of libraries compiled at first use: built once, rebuilt if damaged, and never another user's."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from warren import compiled
from warren.compiled import Compiled, Unbuilt
from warren.processor import LEVELS


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if not any(map(shutil.which, compiled.COMPILERS)):
        pytest.skip("no C compiler")
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("WARREN_CACHE", str(tmp_path / "cache"))
    source = tmp_path / "seven.c"
    source.write_text("double seven(void) { return 7; }\n")
    return source


def seven(source: Path) -> Compiled:
    return Compiled(source, {"seven": ctypes.c_double})


def built(source: Path) -> Path:
    loaded = seven(source).library()
    assert loaded is not None and loaded.seven() == 7
    (file,) = (source.parent / "cache" / "native").glob("*.so")
    return file


def test_a_library_is_built_once(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = built(source).stat()
    monkeypatch.setenv("CC", "false")  # a second compilation would fail
    assert built(source).stat() == before
    source.write_text("double seven(void) { return 7.5; }\n")
    other = seven(source)
    assert other.library() is None
    assert "false could not compile seven.c" in str(other.lacking())


def test_a_library_is_built_again_when_a_header_beside_its_source_changes(source: Path) -> None:
    header = source.with_name("number.h")
    header.write_text("#define NUMBER 7\n")
    source.write_text('#include "number.h"\ndouble seven(void) { return NUMBER; }\n')
    built(source)
    header.write_text("#define NUMBER 8\n")
    loaded = seven(source).library()
    assert loaded is not None and loaded.seven() == 8


def test_a_user_without_a_home_folder_is_told_what_to_set(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "WARREN_CACHE"):
        monkeypatch.delenv(name, raising=False)

    def unknown(user: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {user}")

    monkeypatch.setattr("pwd.getpwuid", unknown)
    library = seven(source)
    assert library.library() is None
    assert library.lacking() == f"user {os.getuid()} has no home folder; set HOME or WARREN_CACHE"


def cut_off(file: Path) -> None:
    with file.open("r+b") as part:
        part.truncate(file.stat().st_size // 2)


def of_another_machine(file: Path) -> None:
    file.write_bytes(b"no library")
    compiled._sum_of(file).write_text(compiled._sha256(file))


@pytest.mark.parametrize("harm", [cut_off, of_another_machine, lambda file: compiled._sum_of(file).unlink()])
def test_a_library_that_cannot_be_loaded_is_built_again(source: Path, harm: Callable[[Path], None]) -> None:
    file = seven(source)._built()  # this process never reads a loaded path again
    whole = file.stat().st_size
    harm(file)
    assert built(source).stat().st_size == whole
    assert compiled._whole(file)


def test_a_rebuilt_library_that_cannot_be_loaded_is_reported(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writes = source.parent / "cc"
    writes.write_text('#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\necho nothing >"$2"\n')
    writes.chmod(0o755)
    monkeypatch.setenv("CC", str(writes))
    one = seven(source)
    assert one.library() is None
    assert "OSError" in str(one.lacking())


def test_a_compiler_that_refuses_an_option_of_gccs_is_asked_without_it(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuses, asked = source.with_name("cc"), source.with_name("asked")
    script = f'echo "$*" >>{asked}\ncase "$*" in *--param*) exit 1;; esac\nexec {compiled.compiler()[0]} "$@"\n'
    refuses.write_text(f"#!/bin/sh\n{script}")
    refuses.chmod(0o755)
    monkeypatch.setenv("CC", str(refuses))
    built(source)
    assert [compiled.WHOLE in line for line in asked.read_text().splitlines()] == [True, False]


@pytest.mark.parametrize("which", [".so", ".sha256"])
def test_a_library_of_another_user_is_not_loaded(source: Path, which: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file = built(source).with_suffix(which)
    if os.getuid() == 0:
        os.chown(file, 12345, -1)
    else:
        monkeypatch.setattr(os, "getuid", lambda: 12345)
    one = seven(source)
    assert one.library() is None
    assert "belongs to user" in str(one.lacking()) and "WARREN_CACHE" in str(one.lacking())


def test_the_variable_cc_may_hold_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "true  -m64")
    assert compiled.compiler() == [shutil.which("true"), "-m64"]
    monkeypatch.setenv("CC", " ")
    with pytest.raises(Unbuilt, match="no C compiler"):
        compiled.compiler()


def ahead(source: Path, *more: str) -> list[Path]:
    command = [sys.executable, "-m", "warren.compiled", str(source), *more]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return [*map(Path, done.stdout.split())]


@pytest.mark.skipif(platform.machine() not in LEVELS, reason="levels of known processors")
def test_a_library_compiled_ahead_serves_where_there_is_no_compiler(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = ahead(source)
    assert len(files) == len(LEVELS[platform.machine()])
    monkeypatch.setenv("CC", "no-such-compiler")
    loaded = seven(source).library()
    assert loaded is not None and loaded.seven() == 7 and seven(source).lacking() is None
    assert not (source.parent / "cache").exists()
    source.write_text("double seven(void) { return 8; }\n")  # of another source there is none
    assert seven(source).library() is None
    assert "no C compiler was found (no-such-compiler)" in str(seven(source).lacking())


@pytest.mark.skipif(platform.machine() != "x86_64", reason="levels of x86-64 processors")
def test_the_best_level_of_those_that_the_processor_has_is_taken(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place, file in enumerate(ahead(source)):
        source.write_text(f"double seven(void) {{ return {place}; }}\n")
        subprocess.run([*compiled.compiler(), "-shared", "-fPIC", str(source), "-o", str(file)], check=True)
    source.write_text("double seven(void) { return 7; }\n")
    monkeypatch.setenv("CC", "no-such-compiler")
    for place, features in enumerate(LEVELS["x86_64"].values()):
        line = f"flags : fpu {' '.join(features)}"
        monkeypatch.setattr("warren.processor.processor_features", lambda line=line: line)
        loaded = seven(source).library()
        assert loaded is not None and loaded.seven() == place


def test_sources_that_cannot_be_compiled_ahead_are_named_without_a_traceback(source: Path) -> None:
    command = [sys.executable, "-m", "warren.compiled", str(source)]
    environment = {**os.environ, "CC": "no-such-compiler"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 1
    assert done.stderr == "not all is compiled ahead: no C compiler was found (no-such-compiler)\n"
