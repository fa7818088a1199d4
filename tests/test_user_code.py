"""Tests of the loader of user code, and of the line in it that a failure names."""

from __future__ import annotations

import subprocess
import sys
import types
from pathlib import Path

import pytest
from omegaconf import OmegaConf
from support.waiting import PATIENCE

from agents import build_algorithm
from league.rules.settings import Settings
from warren import user_code
from warren.errors import ConfigurationError
from warren.user_code import is_users, users_line, where
from workers.config.hosts import ranks
from workers.config.schema import CONF

USERS = "import json\nfrom league.rules.settings import Settings\nfrom workers.config.hosts import ranks\n"
FAILURES = {
    "own": "raise ValueError('own')",
    "library": "json.loads('{')",
    "league": "Settings(no_such_setting=1)",
    "workers": "ranks(None, 'actors', None)",
}


def failure(code: types.CodeType) -> Exception:
    with pytest.raises(Exception) as raised:
        exec(code, {})
    return raised.value


@pytest.mark.parametrize("place", FAILURES)
def test_failure_names_the_users_line_wherever_it_was_raised(place: str) -> None:
    error = failure(compile(f"{USERS}{FAILURES[place]}", "/home/me/game.py", "exec"))
    assert users_line(error) == "/home/me/game.py:4"
    assert where(error) == " at /home/me/game.py:4"


@pytest.mark.parametrize(
    "file",
    [
        sys.modules[Settings.__module__].__file__, sys.modules[ranks.__module__].__file__, user_code.__file__,
        subprocess.__file__, pytest.__file__, "<frozen importlib._bootstrap>", "<string>",
        "/opt/venv/lib/python3.12/site-packages/numpy/core.py", "/usr/lib/python3/dist-packages/yaml/__init__.py",
    ],
)  # fmt: skip
def test_code_of_warren_and_of_libraries_is_not_the_users(file: str) -> None:
    assert not is_users(file)


@pytest.mark.parametrize("folder", ["/home/me", str(Path(user_code.__file__).parents[1] / "examples"), "/srv/league"])
def test_code_elsewhere_is_the_users(folder: str) -> None:
    assert is_users(f"{folder}/game.py")


def loaded(folder: Path, script: str) -> str:
    """Run `script`, with `find` and `load`, in a process of its own; return its output."""
    line = [sys.executable, "-c", f"from warren.user_code import find, load\n{script}"]
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_file_and_the_neighbour_that_imports_it_share_one_module(tmp_path: Path) -> None:
    (tmp_path / "game.py").write_text("class Game: ...\n")
    (tmp_path / "tools.py").write_text("import game\n")
    script = "print(load('tools.py').game is load('game.py'), find('environment', 'game.py:Game').__module__)"
    assert loaded(tmp_path, script) == "True game"


def test_two_files_of_one_name_are_two_modules(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "game.py").write_text(f"NAME = {folder!r}\n")
    script = "print(*(load(f'{one}/game.py').NAME for one in ('one', 'two', 'one')))"
    assert loaded(tmp_path, script) == "one two one"


def test_file_named_as_a_library_does_not_hide_it(tmp_path: Path) -> None:
    (tmp_path / "users").mkdir()
    (tmp_path / "users" / "colorsys.py").write_text("OWN = 1\n")
    script = "print(load('users/colorsys.py').OWN); import colorsys; print(colorsys.rgb_to_hsv(0, 0, 0)[2])"
    assert loaded(tmp_path, script).split() == ["1", "0"]


def test_an_extra_can_be_installed_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout = Path(user_code.__file__).parents[1]
    monkeypatch.chdir(checkout)
    assert user_code.requirement("games") == "-e '.[games]'"
    monkeypatch.chdir(tmp_path)
    assert user_code.requirement("games") == f"-e '{checkout}[games]'"


@pytest.mark.parametrize("kind", ["algorithm", "network"])
def test_code_of_ones_own_without_a_name_is_asked_for(kind: str) -> None:
    settings = OmegaConf.load(CONF / kind / "own.yaml")
    with pytest.raises(ConfigurationError, match=rf"^{kind}=own: names no code; give {kind}\.name=FILE\.py:build,"):
        user_code.find(kind, settings.name)


def test_a_name_of_something_else_than_a_class_or_function_is_refused(tmp_path: Path) -> None:
    (file := tmp_path / "mine_named.py").write_text("build = 5\n")
    with pytest.raises(ConfigurationError, match=r"mine_named.py:build' is a int; name a class or a function$"):
        user_code.find("algorithm", f"{file}:build")


def test_a_call_with_arguments_that_a_function_lacks_is_blamed_on_it(tmp_path: Path) -> None:
    file = tmp_path / "mine_called.py"
    file.write_text("def build(config):\n    return len(config, 2)\n")
    build = user_code.find("algorithm", f"{file}:build")
    with pytest.raises(TypeError, match="len"):  # within it
        user_code.call("algorithm 'a'", build, {})
    with pytest.raises(TypeError, match="no keyword"):  # not written in Python
        user_code.call("environment 'a'", dict.fromkeys, [], bog=1)
    with pytest.raises(ConfigurationError) as raised:
        build_algorithm(f"{file}:build", {}, None, 0)  # type: ignore[arg-type]  # it is not called
    (said,) = raised.value.problems
    assert said.startswith(f"algorithm '{file}:build': build() takes 1 positional argument but 3 were given; it takes")
    assert f"(config) at {file}:1; give it these" in said and isinstance(raised.value.__cause__, TypeError)


def test_missing_file_and_missing_module_are_named() -> None:
    with pytest.raises(ConfigurationError, match=r"environment '/none/game.py:Game': there is no file /none/game.py"):
        user_code.find("environment", "/none/game.py:Game")
    with pytest.raises(ConfigurationError, match="there is no module 'no_such_module'; for a module of your own"):
        user_code.find("environment", "no_such_module.part:Game")
