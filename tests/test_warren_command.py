"""Tests of the command `warren`: its list of commands, and the words that it passes on."""

from __future__ import annotations

import importlib.util
import json
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from workers import command

PROGRAMS = {name: program for group in command.PROGRAMS.values() for name, program in group.items()}


def ended(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["warren", *words])
    with pytest.raises(SystemExit) as ending:
        command.main()
    return int(ending.value.code or 0)


@pytest.mark.parametrize("words", [(), ("--help",), ("-h",)])
def test_help_lists_every_command(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(monkeypatch, *words) == 0
    said = capsys.readouterr().out
    assert all(f"  {name} " in said and program.purpose in said for name, program in PROGRAMS.items())


@pytest.mark.parametrize("module", sorted({program.module for program in PROGRAMS.values()}))
def test_every_command_is_a_module_that_exists(module: str) -> None:
    assert importlib.util.find_spec(module) is not None


def test_help_imports_nothing_heavy() -> None:
    asked = (
        "import sys, json\nfrom workers import command\nsys.argv = ['warren']\n"
        "try: command.main()\nexcept SystemExit: print(json.dumps([*sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in json.loads(done.stdout.splitlines()[-1])}
    assert not loaded & {"torch", "numpy", "celery", "kombu", "hydra", "redis", "gymnasium", "tasks", "envs", "agents"}


def test_unknown_command_names_the_nearest_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(monkeypatch, "trian") == 2
    assert "command 'trian' does not exist; did you mean train" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "module", "passed"),
    [
        (["train", "actors=4", "--cfg", "job"], "workers.train", ["actors=4", "--cfg", "job"]),
        (["league"], "workers.train", ["experiment=kuhn"]),
        (["league", "actors=4"], "workers.train", ["experiment=kuhn", "actors=4"]),
        (["league", "experiment=rps"], "workers.train", ["experiment=rps"]),
        (["league", "resume=runs/kuhn/x"], "workers.train", ["resume=runs/kuhn/x"]),
        (["rebuild", "--until", "x y"], "league.replay", ["--until", "x y"]),
    ],
)
def test_words_are_passed_on(given: list[str], module: str, passed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Any] = []
    monkeypatch.setattr(runpy, "run_module", lambda name, **_: ran.append((name, sys.argv[1:])))
    monkeypatch.setattr(sys, "argv", ["warren", *given])
    monkeypatch.setattr(sys, "path", [*sys.path])
    command.main()
    assert ran == [(module, passed)]


def test_the_exit_status_is_that_of_the_program() -> None:
    line = [sys.executable, "-m", "workers.command", "export"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    alone = subprocess.run([sys.executable, "-m", "workers.export"], capture_output=True, text=True, check=False)
    assert done.returncode == alone.returncode != 0
    assert done.stderr == alone.stderr


@pytest.mark.parametrize(
    ("given", "trained"),
    [
        ("actors=4 league.goal=0.1", "experiment=kuhn actors=4 league.goal=0.1"),
        ("league=mine league.env=my.py:Game", "league=mine league.env=my.py:Game"),
        ("experiment=leduc", "experiment=leduc"),
    ],
)
def test_make_league_trains_kuhn_unless_its_words_choose(given: str, trained: str) -> None:
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    root = Path(command.__file__).parents[1]
    said = subprocess.run(
        ["make", "-n", "league", f"ARGS={given}"], cwd=root, capture_output=True, text=True, check=True
    )
    assert said.stdout.splitlines()[-1].split() == [".venv/bin/python", "-m", "workers.train", *trained.split()]
