"""Tests of docker/python3.13.sh: it uses this machine's Python 3.13, else a container's, else says what is missing."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from support.waiting import PATIENCE

SCRIPT = Path(__file__).resolve().parent.parent / "docker" / "python3.13.sh"
NEEDED = ("sh", "dirname", "printenv")


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """Return the only folder on PATH: it has the programs the script uses, but none of those it searches for."""
    for name in NEEDED:
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    return tmp_path


def stand_in(programs: Path, name: str) -> None:
    """Make a program that prints its name and arguments, one per line, and succeeds."""
    (programs / name).write_text(f"#!/bin/sh\nprintf '%s\\n' {name} \"$@\"\n")
    (programs / name).chmod(0o755)


def run(programs: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [SCRIPT, *arguments]
    environment |= {"PATH": str(programs)}
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False, env=environment)


def test_python_of_this_machine_comes_first(programs: Path) -> None:
    for name in ("python3.13", "make", "docker"):
        stand_in(programs, name)
    done = run(programs, "-k", "matchmaking")
    assert done.stdout.splitlines() == [
        "make", "--no-print-directory", "VENV=.venv-python3.13", "PYTHON3=python3.13", "test-without-servers",
        "ARGS=-k matchmaking",
    ]  # fmt: skip


@pytest.mark.parametrize(("there", "given"), [({"docker"}, "TARGET=try-wheel"), ({"python3.13", "make"}, "try-wheel")])
def test_another_target_can_be_made(programs: Path, there: set[str], given: str) -> None:
    for name in there:
        stand_in(programs, name)
    said = run(programs, TARGET="try-wheel").stdout.splitlines()
    assert given in said
    assert "test-without-servers" not in said


def test_container_of_debian_13_comes_second(programs: Path) -> None:
    stand_in(programs, "docker")
    done = run(programs, "-k", "matchmaking", TORCH_INDEX="https://index/cpu")
    assert done.returncode == 0, done.stderr
    given = done.stdout.splitlines()
    assert given[:4] == ["docker", "run", "--rm", "--init"]
    assert {"ARGS=-k matchmaking", "TORCH_INDEX", "debian:trixie-slim"} <= set(given)
    assert "PIP_INDEX_URL" not in given


def test_machine_with_neither_is_told_what_to_install(programs: Path) -> None:
    done = run(programs)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: neither python3.13")
