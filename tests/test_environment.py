"""Tests of secrets from the environment: in a variable, or in a file that another variable names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tasks import context
from warren.environment import secret
from warren.errors import ConfigurationError


def test_a_variable_wins_over_its_file_whose_last_newline_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "url"
    path.write_text("redis://:secret@redis/0\n")
    assert secret("URL", {}) is None
    assert secret("URL", {"URL_FILE": str(path)}) == "redis://:secret@redis/0"
    assert secret("URL", {"URL_FILE": str(path), "URL": "redis://other/0"}) == "redis://other/0"


def test_a_missing_or_empty_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"URL_FILE: .*/none cannot be read: No such file"):
        secret("URL", {"URL_FILE": str(tmp_path / "none")})
    (tmp_path / "empty").touch()
    with pytest.raises(ConfigurationError, match=r"URL_FILE: .*/empty is empty"):
        secret("URL", {"URL_FILE": str(tmp_path / "empty")})


def test_a_process_finds_its_run_by_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broker").write_text("amqp://u:p@127.0.0.1:1//\n")
    (tmp_path / "redis").write_text("redis://127.0.0.1:1/0\n")
    monkeypatch.setattr(context, "_run", None)
    for name, value in (("BROKER_URL_FILE", tmp_path / "broker"), ("REDIS_URL_FILE", tmp_path / "redis"), ("RUN", "x")):
        monkeypatch.setenv(f"WARREN_{name}", str(value))
    for name in ("WARREN_BROKER_URL", "WARREN_REDIS_URL"):
        monkeypatch.delenv(name, raising=False)
    run = context.current()
    assert (run.topology.run, run.app.conf.broker_url) == ("x", "amqp://u:p@127.0.0.1:1//")


@pytest.mark.parametrize("command", ["workers.services", "workers.scale", "league.show"])
def test_a_command_whose_file_is_missing_says_so_in_one_line(command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", command, "--run", "x", *(["actors=2"] if command == "workers.scale" else [])],
        env={"WARREN_BROKER_URL_FILE": "/none", "WARREN_REDIS_URL_FILE": "/none"},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "/none cannot be read" in done.stderr
    assert "Traceback" not in done.stderr
